"""Products, factorizations and triangles of matrices, dense and sparse."""
