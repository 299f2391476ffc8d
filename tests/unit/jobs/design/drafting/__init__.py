"""`das init`: attributes, geolevels, texts."""
