"""Normalizations, and what the CPU and GPU make of those beside other layers."""
