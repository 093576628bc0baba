"""Rows of losses and metrics."""
