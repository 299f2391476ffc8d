"""Many families of small nodes at once, in compiled loops."""
