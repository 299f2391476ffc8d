"""Stores of files: the protocol that a run needs, and its implementations."""
