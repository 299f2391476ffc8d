"""How far a release is from the truth."""
