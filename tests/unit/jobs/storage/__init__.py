"""Every byte on disk."""
