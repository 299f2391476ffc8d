"""Errors and budgets before a run."""
