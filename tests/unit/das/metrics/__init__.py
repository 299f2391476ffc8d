"""Errors of counts."""
