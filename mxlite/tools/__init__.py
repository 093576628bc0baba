"""Tools: pictures of networks, and what this installation can do."""

from .draw import plot_network as plot_network, print_summary as print_summary
