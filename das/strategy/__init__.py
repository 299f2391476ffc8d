"""What is measured at which geolevel, with what share of the budget."""
