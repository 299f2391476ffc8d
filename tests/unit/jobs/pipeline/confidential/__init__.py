"""What sees the truth."""
