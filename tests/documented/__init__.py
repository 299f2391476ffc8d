"""Every block of code in the documents is run as written, or says in the source why not."""
