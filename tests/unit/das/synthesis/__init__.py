"""Survey microdata."""
