"""Rows whose kernels are oneDNN's alone, most of them for machines without a compiler."""
