"""Rows of matrix products and linear algebra."""
