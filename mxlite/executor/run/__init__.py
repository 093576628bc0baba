"""A planned step in memory: its arena, its arrays, its calls, and how numbers come to them."""
