"""The integer stage."""
