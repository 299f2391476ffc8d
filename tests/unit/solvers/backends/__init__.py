"""Solvers of others."""
