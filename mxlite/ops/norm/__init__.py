"""Normalizations, and their fusions with other layers on the CPU and GPU."""
