"""Budgets, costs and what they promise."""
