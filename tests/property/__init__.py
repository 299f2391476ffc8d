"""Does it hold for all inputs?"""
