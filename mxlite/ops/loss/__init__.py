"""Losses, softmax, and outputs that start the backward pass."""
