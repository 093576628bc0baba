"""Generated code that draws random numbers or weighs them."""
