"""The CPU's kernels: oneDNN's and generated ones. `backend.py` has the backend that is made of them."""
