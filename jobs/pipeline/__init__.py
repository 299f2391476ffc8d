"""The engine: plan, read, check, measure, estimate, solve, write, finalize, verify, evaluate."""
