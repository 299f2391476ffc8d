"""Rounding of the continuous solution to integers, and the failsafe where there are none."""
