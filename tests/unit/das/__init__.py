"""The privacy core."""
