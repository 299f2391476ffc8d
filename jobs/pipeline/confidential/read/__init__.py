"""Readers of confidential input, one module a format."""
