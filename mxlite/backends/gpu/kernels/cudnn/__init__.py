"""Rows on cuDNN, which are asked before all others."""
