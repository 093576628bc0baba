"""Operators as functions, methods and Python's signs, and functions that are made of several."""
