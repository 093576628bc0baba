"""Arrays that store only some of their elements."""
