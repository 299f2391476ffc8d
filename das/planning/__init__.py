"""Choosing what to measure, and how noisily, for a workload of marginals (matrix mechanisms)."""
