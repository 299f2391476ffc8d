"""Integers next to the solution, and what to do where there are none."""
