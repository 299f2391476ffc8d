"""High-dimensional matrix mechanism: strategies of products and of marginals."""
