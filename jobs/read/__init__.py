"""Reading confidential input: one module per format, all giving (geocode, cell, n) entries."""
