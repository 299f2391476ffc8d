"""Exact discrete noise: entropy, reference samplers, certified tables and their moments."""
