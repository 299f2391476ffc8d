"""Planning what to measure."""
