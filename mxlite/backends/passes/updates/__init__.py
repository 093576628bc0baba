"""Optimizer updates fused into the gradient that they read, which is never there as a whole."""
