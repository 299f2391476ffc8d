"""Unbiased estimates of every geounit from all noisy answers of the tree, and how sure they are."""
