"""Generated persons and geographies."""
