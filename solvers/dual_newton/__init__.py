"""Nonnegative least squares of large nodes, matrix-free."""
