"""Kernels generated from what operators declare: they are asked after all others."""
