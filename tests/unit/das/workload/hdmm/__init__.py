"""Strategies of Kronecker products and of marginals."""
