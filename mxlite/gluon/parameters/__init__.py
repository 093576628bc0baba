"""Parameters: the arrays of blocks that are learnt."""
