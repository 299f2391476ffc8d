"""Noisy answers of many geounits in compiled loops: sums that are exact in any order."""
