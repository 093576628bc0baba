"""Sums, extremes, moments and other numbers of many elements."""
