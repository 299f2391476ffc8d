"""From noisy answers to a release."""
