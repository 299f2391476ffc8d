"""Private means of a numeric column, for everybody and by strata."""
