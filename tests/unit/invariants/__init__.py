"""Exact queries."""
