"""The command `das init`: a draft of schema, run file and allocation for person records."""
