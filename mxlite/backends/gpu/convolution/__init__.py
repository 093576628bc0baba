"""Convolutions: output, gradient in data and gradient in the weight, as ways with `connect` and `nbytes`."""
