"""Generated code for normalizations."""
