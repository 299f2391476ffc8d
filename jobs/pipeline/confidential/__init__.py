"""Code that sees confidential data: reading, histograms, checks, measuring, evaluation."""
