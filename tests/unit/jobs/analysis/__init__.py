"""Commands that read a release."""
