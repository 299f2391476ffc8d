"""Does every member of a family keep the promises of the family?"""
