"""The command `das`."""
