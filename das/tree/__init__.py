"""Least squares on the tree of geounits: errors, allocations, estimates."""
