"""Input files before anything confidential is read: chunks, columns, checks, public lists."""
