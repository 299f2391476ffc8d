"""The analyst's side: inference from noisy answers that takes the noise into account."""
