"""The processor as this process uses it: cores, threads, and the libraries that share them."""
