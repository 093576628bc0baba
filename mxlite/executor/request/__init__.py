"""Requests for binding a symbol: types, rates, arrays, plans and monitors."""
