"""Tables of papers, computed again. Programs that print them; no command needs them."""
