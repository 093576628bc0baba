"""`python -m mxlite.launch`: programs on several ranks."""
