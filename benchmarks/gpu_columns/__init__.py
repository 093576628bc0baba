"""What benchmarks/gpu.py measures: networks, columns, one network in all columns, tables."""
