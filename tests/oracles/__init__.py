"""Is the fast answer the naive one?"""
