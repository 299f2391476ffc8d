"""Does the output reveal more than is claimed? Divergences of output laws, and attacks on runs."""
