"""Elementwise operators as steps of one element, for kernels that apply them to numbers in registers."""
