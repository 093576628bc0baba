"""Elementwise operators as expressions, for every backend that generates code.

What an operator computes for one element is written once, in `rules`; `chains` makes one node of several.
How an expression becomes code is the backend's.
"""
