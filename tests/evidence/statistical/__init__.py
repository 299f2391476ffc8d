"""Is the noise right at scale? Fixed keys, tests of known power."""
