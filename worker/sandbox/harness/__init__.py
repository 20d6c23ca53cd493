"""Checking functions of a program: the program runs in one process, its checks in another.

Everything here but `bundle` travels as text and runs wherever the program runs: standard library
only, Python 3.8 and later.
"""
