"""General solvers behind two functions: the least-squares stage and the integer stage."""
