"""Rows of normalizations."""
