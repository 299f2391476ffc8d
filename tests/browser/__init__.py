"""Pages of the project in a real browser."""
