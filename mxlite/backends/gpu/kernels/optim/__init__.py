"""Rows of optimizers' steps."""
