"""Operators that create, move, repeat, cut and join elements and compute nothing."""
