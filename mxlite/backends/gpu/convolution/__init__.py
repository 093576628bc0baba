"""Convolutions: candidates for output, data gradient and weight gradient, with `connect` and `nbytes`."""
