"""Rows of the operators by family: parameters and shapes worth trying."""
