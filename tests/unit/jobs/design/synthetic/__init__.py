"""Made-up persons."""
