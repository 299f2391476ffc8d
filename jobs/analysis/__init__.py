"""Commands that work on a release."""
