"""Every byte on disk: datasets, journals, accounts, histograms, answers."""
