"""Synthetic persons, households and geographies."""
