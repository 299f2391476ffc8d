"""The spine and the lattice."""
