"""Least squares on the tree."""
