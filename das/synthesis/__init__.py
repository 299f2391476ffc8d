"""Survey microdata: marginals measured, a mixture of products fitted to them, records drawn."""
