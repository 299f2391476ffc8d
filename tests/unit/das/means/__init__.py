"""Means of strata."""
