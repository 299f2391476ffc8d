"""From noisy answers to a histogram: least squares, its rivals, and a posterior mean."""
