"""How generated code is written: instructions, functions of vectors, loops, tiles, traced formulas."""
