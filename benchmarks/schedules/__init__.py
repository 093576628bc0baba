"""Schedules of kernels: tables of measured ones, searches replayed on them, models that predict them."""
