"""Read and check input files and public lists: chunks, columns, geocodes."""
