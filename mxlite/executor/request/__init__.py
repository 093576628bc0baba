"""What is asked for when a symbol is bound: types, rates, arrays, plans and monitors that are brought."""
