"""Servers that tests start: stores of objects and files, a cluster's manager, hosts with a network.

Each module is one kind of server, started by a context manager that stops it again; its docstring
says what the server honours. None of them is reached from outside this machine.
"""
