"""What sees the truth: reading, histograms, measuring, checks, evaluation."""
