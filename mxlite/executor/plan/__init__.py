"""From a network to a planned step: what has to be done, what it owns, in which memory it fits."""
