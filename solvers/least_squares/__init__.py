"""Nonnegative least squares of one node, by active sets."""
