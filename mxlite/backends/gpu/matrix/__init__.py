"""Matrix products, and what is made of them, by cuBLASLt or by kernels of our own."""
