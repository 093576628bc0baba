"""The link between ranks, by which the time of messages is modelled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.errors import BindError
from ...core.wanted import found
from .device import is_rate

_LINK = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([kmgt]?)(b|bytes|bit)\s*/\s*s"
    r"(?:\s*,\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*us)?\s*",
    re.IGNORECASE,
)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, slots=True)
class RankLink:
    """A link that carries `bytes_per_s` out of each rank, and as many into it, at `latency_s` a message.

    The default is an Ethernet of 10 Gbit/s.
    """

    bytes_per_s: float = 1.25e9
    latency_s: float = 20e-6

    def __post_init__(self) -> None:
        if not is_rate(self.bytes_per_s) or not 0 <= self.latency_s <= 1:
            raise BindError(
                f"A RankLink has bytes_per_s above 0 and latency_s from 0 to 1, got "
                f"{found(self.bytes_per_s)} and {found(self.latency_s)}; as in "
                f"RankLink(bytes_per_s=20e9, latency_s=5e-6)."
            )

    def __str__(self) -> str:
        return f"{self.bytes_per_s / 1e9:.4g} GB/s"

    def seconds(self, nbytes: int, ranks: int, phases: int = 2) -> float:
        """Modelled time in which each of the `ranks` sends `nbytes`, but for its own part, so many times."""
        return phases * (self.latency_s + nbytes * (ranks - 1) / ranks / self.bytes_per_s)

    @classmethod
    def of(cls, link: RankLink | str | None) -> RankLink:
        """The link described by text such as "20GB/s", "10Gbit/s" or "20GB/s,5us"; the default for None."""
        if link is None:
            return cls()
        if isinstance(link, RankLink):
            return link
        read = _LINK.fullmatch(link) if isinstance(link, str) and len(link) <= 100 else None
        if read is None:
            raise BindError(
                f"link must be a rate such as '20GB/s' or '10Gbit/s', and the time of a message behind it if "
                f"that matters, as in '20GB/s,5us'; got {found(link)}."
            )
        rate = float(read[1]) * _PREFIX[read[2].lower()] / (8 if read[3].lower() == "bit" else 1)
        return cls(rate) if read[4] is None else cls(rate, float(read[4]) * 1e-6)
