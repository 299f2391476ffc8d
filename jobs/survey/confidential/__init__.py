"""Stages of a survey run that see the truth: reading, measuring, evaluating."""
