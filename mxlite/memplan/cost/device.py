"""Roofline model of a device, by which plans weigh recomputation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ...core.errors import DeviceError
from ...core.wanted import found

FLOPS_PER_S = 10e12  # of the device that plans assume unless another is described
BYTES_PER_S = 600e9

MEASURED = "measured"
"""Value of `device=` that stands for timing the kernels on this device, see `mx.calibrate`."""

Precision = Literal["", "tf32", "half"]
"""Precision of a call's matrix products, where it has a rate of its own."""

SLOWEST, FASTEST = 1e-9, 1e30
"""Bounds on rates, within which sums of seconds neither overflow nor vanish."""

LONGEST_LAUNCH_S = 1.0

_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_RATE = re.compile(
    r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([kmgtpe]?)(flops?|b|bytes)\s*/\s*s(?:\s+(tf32|half))?",
    re.IGNORECASE,
)
_LAUNCH = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*us\s*/\s*launch", re.IGNORECASE)
LONGEST_TEXT = 200  # characters


def is_rate(rate: object) -> bool:
    """True if `rate` is a usable number of units per second."""
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
    Andrew Waterman and David Patterson (2009). On a GPU each kernel launch adds `launch_s`, the idle time
    between the end of one kernel and the start of the next. A GPU's matrix products (convolutions, dense and
    recurrent layers, attention) have rates of their own: `half_flops_per_s` where they multiply float16
    or bfloat16, `tf32_flops_per_s` where they multiply float32 as TF32; `flops_per_s` where that is None.
    `name` is only shown. Raises DeviceError unless rates are finite numbers above 0, and `launch_s` is from 0
    to 1.
    """

    flops_per_s: float = FLOPS_PER_S
    bytes_per_s: float = BYTES_PER_S
    name: str = ""
    tf32_flops_per_s: float | None = None
    half_flops_per_s: float | None = None
    launch_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("flops_per_s", "bytes_per_s", "tf32_flops_per_s", "half_flops_per_s"):
            rate = getattr(self, field)
            if rate is None and field in ("tf32_flops_per_s", "half_flops_per_s"):
                continue
            if not is_rate(rate):
                raise DeviceError(
                    f"Device: {field} must be a finite number above 0, from {SLOWEST:g} to {FASTEST:g}, got "
                    f"{found(rate)}; as in Device(flops_per_s=20e12, bytes_per_s=900e9)."
                )
            object.__setattr__(self, field, float(rate))
        if self.launch_s != 0 and not (is_rate(self.launch_s) and self.launch_s <= LONGEST_LAUNCH_S):
            raise DeviceError(
                f"Device: launch_s must be 0, or seconds from {SLOWEST:g} to {LONGEST_LAUNCH_S:g}, got "
                f"{found(self.launch_s)}; as in launch_s=2e-6."
            )
        object.__setattr__(self, "launch_s", float(self.launch_s))
        if not isinstance(self.name, str):
            raise DeviceError(f"Device: name must be text, got {type(self.name).__name__}.")

    def seconds(self, flops: float, nbytes: float, precision: Precision = "", launches: int = 1) -> float:
        """Modelled time of a call: the slower of arithmetic and memory traffic, plus its launches."""
        rate = {"tf32": self.tf32_flops_per_s, "half": self.half_flops_per_s}.get(precision)
        return max(flops / (rate or self.flops_per_s), nbytes / self.bytes_per_s) + launches * self.launch_s

    def __str__(self) -> str:
        rates = f"{_rate(self.flops_per_s)}FLOP/s, {_rate(self.bytes_per_s)}B/s"
        for rate, precision in ((self.tf32_flops_per_s, "tf32"), (self.half_flops_per_s, "half")):
            rates += "" if rate is None else f", {_rate(rate)}FLOP/s {precision}"
        rates += f", {self.launch_s * 1e6:.4g} us/launch" if self.launch_s else ""
        return f"{self.name} ({rates})" if self.name else rates

    @classmethod
    def parse(cls, text: str) -> Device:
        """The device described by `"20TFLOP/s,900GB/s"`: arithmetic, then memory traffic, with powers of
        1000. Rates of a GPU's matrix products may follow, `"150TFLOP/s tf32"`, `"300TFLOP/s half"`, and last
        the time of a launch, `"2us/launch"`.
        """
        *listed, last = text.split(",") if len(text) <= LONGEST_TEXT else ("", "")
        launch = _LAUNCH.fullmatch(last.strip())
        parts = [_RATE.fullmatch(p.strip()) for p in (listed if launch else (*listed, last))]
        rates = {
            (p[3].lower().startswith("flop"), (p[4] or "").lower()): float(p[1]) * _PREFIX[p[2].lower()]
            for p in parts
            if p is not None
        }
        order = list(rates)
        special = {(True, "tf32"), (True, "half")}
        if len(order) != len(parts) or order[:2] != [(True, ""), (False, "")] or set(order[2:]) - special:
            raise DeviceError(
                f"Cannot read the device {text[:LONGEST_TEXT]!r}: write arithmetic and memory traffic, as in "
                f"'20TFLOP/s,900GB/s', or with '150TFLOP/s tf32', '300TFLOP/s half' and '2us/launch' behind "
                f"them, or {MEASURED!r}."
            )
        flops, nbytes = rates[True, ""], rates[False, ""]
        launch_s = float(launch[1]) * 1e-6 if launch else 0.0
        return cls(flops, nbytes, "", rates.get((True, "tf32")), rates.get((True, "half")), launch_s)


DEFAULT = Device()


def device_of(device: Device | str | None, default: Device = DEFAULT) -> Device | None:
    """Device that an argument `device=` stands for: None for `"measured"`, `default` for None."""
    if device is None:
        return default
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
