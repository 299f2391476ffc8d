"""Tools before a run: drafts of run files, generated data, planned budgets, the demonstration."""
