"""Tests, in rooms that mirror the packages of mxlite; helpers have rooms of their own."""
