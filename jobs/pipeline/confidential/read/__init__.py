"""Readers of confidential input, one module per format."""
