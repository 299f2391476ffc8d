"""`das init`: a first schema, run file and allocation, proposed for a file of person records."""
