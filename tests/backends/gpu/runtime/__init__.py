"""Drivers, memory, streams, arrays and libraries of GPUs."""
