"""Faults to plant in the code, a list an area: who catches each is asserted by torture/parts/planted.py."""
