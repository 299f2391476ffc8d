"""The continuous stage."""
