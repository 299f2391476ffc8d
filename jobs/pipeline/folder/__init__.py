"""Whose folder a run is, what is done, what is drawn."""
