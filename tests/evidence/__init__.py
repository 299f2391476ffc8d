"""Is it true? Proofs of samplers, statistics at scale, claims against attacks, faults that must be seen."""
