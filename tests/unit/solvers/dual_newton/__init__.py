"""The continuous stage without matrices."""
