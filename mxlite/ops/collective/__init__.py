"""Operators that take part in messages among the ranks of a job."""
