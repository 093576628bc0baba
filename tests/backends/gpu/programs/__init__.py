"""Bound programs and training on GPUs."""
