"""Formats of input."""
