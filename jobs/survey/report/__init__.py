"""Pages of surveys: means, microdata, and how far they are from the truth."""
