"""The node solver."""
