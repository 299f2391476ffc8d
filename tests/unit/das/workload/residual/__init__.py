"""Residual bases and their plans."""
