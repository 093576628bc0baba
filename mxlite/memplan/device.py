"""What a device does in a second: the model by which plans weigh recomputation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core.errors import DeviceError
from ..core.wanted import found

FLOPS_PER_S = 10e12  # of the device that plans are reckoned for, unless another is described
BYTES_PER_S = 600e9

MEASURED = "measured"
"""What to write for a device whose kernels shall be timed, see `mx.calibrate`."""

SLOWEST, FASTEST = 1e-9, 1e30
"""Rates between which sums of seconds are neither infinite nor lost."""

_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_RATE = re.compile(
    r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([kmgtpe]?)(flops?|b|bytes)\s*/\s*s", re.IGNORECASE
)
LONGEST_TEXT = 100  # characters


def is_rate(rate: object) -> bool:
    """Whether it is a number of something a second that times can be reckoned with."""
    if isinstance(rate, (bool, str)):
        return False
    try:
        return SLOWEST <= float(rate) <= FASTEST  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


@dataclass(frozen=True, slots=True)
class Device:
    """A device with `flops_per_s` of arithmetic and `bytes_per_s` of memory traffic.

    A call takes `max(flops / flops_per_s, bytes / bytes_per_s)` seconds: the roofline of Samuel Williams,
    Andrew Waterman and David Patterson (2009). `name` is only shown. Raises DeviceError unless both rates are
    finite numbers above 0.
    """

    flops_per_s: float = FLOPS_PER_S
    bytes_per_s: float = BYTES_PER_S
    name: str = ""

    def __post_init__(self) -> None:
        for field in ("flops_per_s", "bytes_per_s"):
            rate = getattr(self, field)
            if not is_rate(rate):
                raise DeviceError(
                    f"Device: {field} must be a finite number above 0, from {SLOWEST:g} to {FASTEST:g}, got "
                    f"{found(rate)}; as in Device(flops_per_s=20e12, bytes_per_s=900e9)."
                )
            object.__setattr__(self, field, float(rate))
        if not isinstance(self.name, str):
            raise DeviceError(f"Device: name must be text, got {type(self.name).__name__}.")

    def seconds(self, flops: float, nbytes: float) -> float:
        """Modelled time of a call: the slower of arithmetic and memory traffic."""
        return max(flops / self.flops_per_s, nbytes / self.bytes_per_s)

    def __str__(self) -> str:
        rates = f"{_rate(self.flops_per_s)}FLOP/s, {_rate(self.bytes_per_s)}B/s"
        return f"{self.name} ({rates})" if self.name else rates

    @classmethod
    def parse(cls, text: str) -> Device:
        """The device of `"20TFLOP/s,900GB/s"`: arithmetic, then memory traffic, with powers of 1000."""
        parts = [_RATE.fullmatch(p.strip()) for p in text.split(",")] if len(text) <= LONGEST_TEXT else []
        rates = [
            (float(p[1]) * _PREFIX[p[2].lower()], p[3].lower().startswith("flop"))
            for p in parts
            if p is not None
        ]
        if len(parts) != 2 or [is_flops for _, is_flops in rates] != [True, False]:
            raise DeviceError(
                f"Cannot read the device {text[:LONGEST_TEXT]!r}: write arithmetic and memory traffic, as in "
                f"'20TFLOP/s,900GB/s', or {MEASURED!r}."
            )
        return cls(rates[0][0], rates[1][0])


DEFAULT = Device()


def device_of(device: Device | str | None) -> Device | None:
    """What an argument `device=` means: None for `"measured"`, the default device for None."""
    if device is None:
        return DEFAULT
    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        return None if device.strip().lower() == MEASURED else Device.parse(device)
    raise DeviceError(
        f"device must be a mx.memplan.Device, text such as '20TFLOP/s,900GB/s', or {MEASURED!r}; "
        f"got {type(device).__name__}."
    )


def _rate(per_s: float) -> str:
    """`2e13` -> `"20 T"`."""
    for letter, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if per_s >= size:
            return f"{per_s / size:.4g} {letter}"
    return f"{per_s:.4g} "
