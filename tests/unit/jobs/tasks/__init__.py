"""How tasks run."""
