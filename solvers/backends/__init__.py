"""General solvers behind the same two questions: the least-squares stage and the integer stage."""
