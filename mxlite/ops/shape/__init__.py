"""Operators that make, move, repeat, cut and join elements and compute nothing."""
