"""Attributes, recodes and cells of a histogram."""
