"""Residual planners: bases, optimal noise, integer queries."""
