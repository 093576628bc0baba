"""The parts of benchmarks/planner.py: one file for each group of tables."""
