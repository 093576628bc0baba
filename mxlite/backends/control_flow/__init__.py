"""Kernels of loops and branches, whose subgraphs are planned once."""
