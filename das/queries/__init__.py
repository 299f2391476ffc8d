"""Integer linear queries in Kronecker form."""
