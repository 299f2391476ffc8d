"""Exact distributions of noise."""
