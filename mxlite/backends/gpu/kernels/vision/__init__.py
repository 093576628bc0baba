"""Rows of operators on images and boxes."""
