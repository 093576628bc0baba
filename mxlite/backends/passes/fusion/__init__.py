"""Prologue and epilogue fusion: a node takes in what is done to its input or its result."""
