"""From noisy answers to the release; sees no truth."""
