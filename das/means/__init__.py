"""Private means of a numeric column, population-wide and by strata."""
