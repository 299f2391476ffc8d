"""Is the law of each sampler exactly right? Deterministic proofs."""
