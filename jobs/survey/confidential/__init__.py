"""What a run of a survey does with the truth: reading, measuring, evaluating."""
