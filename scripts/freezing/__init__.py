"""The parts of scripts/freeze.py: what is recorded of a tree, and how two records are compared."""
