"""This process: its cores, its forks, its garbage collector, its threads together."""
