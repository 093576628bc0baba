"""Rows of the operators that exchange messages among ranks."""
