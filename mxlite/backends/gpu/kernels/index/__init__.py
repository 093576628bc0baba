"""Rows of operators that look up and write by number."""
