"""Faults planted in the source, each of which must turn a named test red."""
