"""Rows of reductions, running sums and order."""
