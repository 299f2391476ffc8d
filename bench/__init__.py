"""How fast is it? Programs that print their measurements."""
