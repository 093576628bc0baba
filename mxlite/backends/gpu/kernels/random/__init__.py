"""Rows of random numbers."""
