"""Queries and their sensitivity."""
