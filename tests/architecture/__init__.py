"""Did the design hold?"""
