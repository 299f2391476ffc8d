"""Budgets before anything is spent: errors, allocations, what is printed."""
