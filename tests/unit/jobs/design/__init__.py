"""What comes before a run."""
