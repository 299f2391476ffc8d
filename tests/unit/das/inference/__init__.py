"""What noisy answers say."""
