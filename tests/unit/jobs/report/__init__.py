"""Pages about a run."""
