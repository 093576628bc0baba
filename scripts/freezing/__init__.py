"""The parts of scripts/freeze.py: recording a tree, and comparing two records."""
