"""Rows of layers of neural networks."""
