"""The gates of LSTM and GRU: what a cell makes of the sums of its inputs and its states, in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Activated = Callable[..., Any]


class Gates(NamedTuple):
    """A cell's place in a graph: its module of operators, the names of its nodes, where its gates lie.

    F: mx.nd or mx.sym.  prefix: of the names of nodes, as "t0_".  activated(F, x, activation, **named): the
    cell's own way to apply one.  axis: along which the gates lie side by side.
    """

    F: Any
    prefix: str
    activated: Activated
    axis: int = 1

    def lstm(
        self,
        gates: Any,
        c: Any,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        out: str = "out",
    ) -> tuple[Any, Any]:
        """h' = o tanh(c') and c' = f c + i g, of the sums of the gates i, f, g, o; h' is the node `out`."""
        F, named = self.F, self.prefix
        parts = F.SliceChannel(gates, num_outputs=4, axis=self.axis, name=f"{named}slice")
        i, f, o = (
            self.activated(F, parts[at], recurrent_activation, name=f"{named}{gate}")
            for at, gate in ((0, "i"), (1, "f"), (3, "o"))
        )
        g = self.activated(F, parts[2], activation, name=f"{named}c")
        c = F.elemwise_add(f * c, i * g, name=f"{named}state")
        return F.elemwise_mul(o, self.activated(F, c, activation), name=f"{named}{out}"), c

    def gru(self, i2h: Any, h2h: Any, h: Any, activation: Any = "tanh") -> Any:
        """h' = (1 - z) tanh(x + r y) + z h, of the gates r, z and of x, y in both products; cuDNN's form."""
        F, named = self.F, self.prefix
        ri, zi, gi = F.SliceChannel(i2h, num_outputs=3, axis=self.axis, name=f"{named}i2h_slice")
        rh, zh, gh = F.SliceChannel(h2h, num_outputs=3, axis=self.axis, name=f"{named}h2h_slice")
        r = F.sigmoid(ri + rh, name=f"{named}r_act")
        z = F.sigmoid(zi + zh, name=f"{named}z_act")
        fresh = (1.0 - z) * self.activated(F, gi + r * gh, activation, name=f"{named}h_act")
        return F.elemwise_add(fresh, z * h, name=f"{named}out")
