"""Rows of operators that compute element by element."""
