"""The command `das compare`: equal variables of two releases or published files, side by side."""
