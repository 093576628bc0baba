"""Rows whose kernels are generated code."""
