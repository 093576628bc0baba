"""Operators that passes make out of others: what runs in one call instead of several."""
