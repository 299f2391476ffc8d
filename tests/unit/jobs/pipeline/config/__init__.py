"""From files of settings to values."""
