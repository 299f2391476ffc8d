"""Stores of files: what a run needs of one, and each kind behind that."""
