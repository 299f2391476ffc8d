"""Privacy budgets, conversions between definitions, loss distributions and the ledger."""
