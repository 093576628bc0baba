"""Metrics, and their sums over batches."""
