"""Surveys: what is public of a run, what follows from its measurements, and its release."""
