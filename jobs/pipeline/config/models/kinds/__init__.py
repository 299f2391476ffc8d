"""Kinds of invariants as run files state them, one module a kind."""
