"""Optimizers, their states, learning rates and loss scales."""
