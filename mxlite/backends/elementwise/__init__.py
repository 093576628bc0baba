"""Elementwise operators as expressions, for every backend that generates code.

The computation of one element is defined once per operator, in `rules`; `chains` fuses several nodes into
one. Each backend generates its own code from expressions.
"""
