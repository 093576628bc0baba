"""Nodes of one kind joined to few, each of which is one launch."""
