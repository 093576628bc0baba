"""Tests of the CPU's kernels: generated code and oneDNN."""
