"""Rows whose kernels are oneDNN's alone: pooling, and moves of axes."""
