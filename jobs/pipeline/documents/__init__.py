"""Documents of a run as values: each kind is frozen types, from which its JSON Schema is made."""
