"""Rows of operators that move elements, or follow from shapes alone."""
