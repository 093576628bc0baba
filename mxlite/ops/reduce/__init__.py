"""Reductions: sums, extremes, moments and other functions of many elements."""
