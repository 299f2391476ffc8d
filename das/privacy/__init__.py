"""Budgets, their exact split, conversions and the ledger."""
