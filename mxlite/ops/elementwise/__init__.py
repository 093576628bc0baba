"""Functions of each element, with broadcasting and without."""
