"""Rows of convolutions, alone and with what is joined to them."""
