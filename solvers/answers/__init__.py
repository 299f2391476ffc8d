"""Sums of noisy answers of many geounits in compiled loops, exact in any order."""
