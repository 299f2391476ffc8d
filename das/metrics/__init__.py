"""Error metrics of a release against the true data."""
