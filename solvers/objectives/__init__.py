"""Other objectives than least squares in a node."""
