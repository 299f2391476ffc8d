"""Families in compiled loops."""
