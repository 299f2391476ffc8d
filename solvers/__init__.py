"""Noisy answers to consistent nonnegative integers. Knows neither geography nor privacy."""
