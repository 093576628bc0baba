"""Generated code for matrices: products, sums of columns, transposition."""
