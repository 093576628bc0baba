"""Rows of matrix products and dense layers, alone and with what is joined to them."""
