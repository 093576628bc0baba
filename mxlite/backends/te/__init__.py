"""Tensor expressions: what an operator computes, as values with shapes, steps and reductions over axes."""
