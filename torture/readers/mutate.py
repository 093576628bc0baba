"""Corruption of files: of their bytes, and of their fields where the format is known.

All choices come from a `random.Random`, so that a seed reproduces a file.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

_NUMBERS = (0, 1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256, 1000, 4095, 4096, 65535, 65536)
_EXTREMES = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    *(b"-1", b"0", b"1", b"nan", b"inf", b"-inf", b"1e400", b"1e-400", b"9" * 30, b"9" * 4400, b"0x10"),
    *(b"None", b"True", b"()", b"(" * 300, b"[" * 3000, b"{" * 300, b"9**9**9", b"-", b"e", b"_", b"1_0"),
    *(b"\0", b"\n", b"\r", b"\t", b",", b":", b" ", b'"', b"\\", b"\xff", b"\xc3", b"\xf0\x9f\x98\x80"),
    *(b"\xd9\xa0", b"\xe2\x80\xa8", b"\\ud800", b"%s", b"{0}", b"../", b"/dev/zero", b"\xef\xbb\xbf"),
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        31,
        32,
        255,
        2**31,
        2**32,
        2**53,
        2**62,
        2**63,
        2**64,
        10**30,
        -(2**63),
    ),
    *(0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf"), 1.0, 2.5),
    *(
        "",
        "0",
        "1",
        "-1",
        "nan",
        "None",
        "(1, 1)",
        "()",
        "(0, 0)",
        "x" * 300,
        "9" * 40,
        "\ud800",
        "é",
        "float16",
    ),
    *([], {}, [[]], [0], [1, 2, 3], {"array": ["float32", [1]]}, {"array": []}, {"a": 1}),
)


def harmed(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """`data` with one to eight corruptions; `others` are files of the same kind."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = random.choice(_WOUNDS)(data, random, others)
    return data


def _at(data: bytes, random: Random) -> int:
    """A random position, often near the beginning, where formats have their headers."""
    return random.randrange(min(len(data), random.choice((16, 64, 256, 1 << 30))) or 1)


def _flip(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        made[_at(data, random)] ^= 1 << random.randrange(8)
    return bytes(made)


def _byte(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    at = _at(data, random)
    return data[:at] + bytes([random.choice((0, 1, 127, 128, 255, random.randrange(256)))]) + data[at + 1 :]


def _cut(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _left_out(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    at = _at(data, random)
    return data[:at] + data[at + random.choice((1, 2, 4, 8, 64, 1000)) :]


def _put_in(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_TEXTS) + data[at:]


def _repeated(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    at = _at(data, random)
    piece = data[at : at + random.choice((1, 2, 4, 16, 100))]
    times = min(random.choice((1, 2, 10, 1000, 20000)), 200_000 // (len(piece) or 1))
    return data[:at] + piece * times + data[at:]


def _spliced(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    at, begin = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
    if random.random() < 0.5:
        return data[:at] + other[begin:]
    size = random.choice((4, 8, 32, 512))
    return data[:at] + other[begin : begin + size] + data[at + size :]


def _number(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    """Replace an integer field by an extreme value, or one close to it."""
    form = random.choice(("<H", "<I", "<Q", ">H", ">I", ">Q", "<I", "<Q"))
    size = struct.calcsize(form)
    if len(data) < size:
        return data
    at = min(_at(data, random), len(data) - size)
    at -= at % random.choice((1, size)) if at >= size else 0
    (old,) = struct.unpack_from(form, data, at)
    beside = old + random.choice((-1, 1, 2, -2, 4, 8))
    new = random.choice((random.choice(_NUMBERS), random.choice(_EXTREMES), beside, len(data) - at, old * 2))
    return data[:at] + struct.pack(form, new % 256**size) + data[at + size :]


def _token(data: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    """Replace a run of digits in text."""
    digits = [i for i in range(len(data)) if 48 <= data[i] < 58] if len(data) < 20_000 else []
    if not digits:
        return _put_in(data, random, _)
    begin = end = random.choice(digits)
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    number = str(random.choice((*_NUMBERS, *_EXTREMES, -1, -(2**31)))).encode()
    return data[:begin] + random.choice((number, random.choice(_TEXTS))) + data[end:]


_WOUNDS: tuple[Callable[[bytes, Random, Sequence[bytes]], bytes], ...] = (
    *(_flip, _byte, _cut, _left_out, _put_in, _repeated, _spliced, _number, _number, _token, _token),
)


def harmed_tree(tree: Any, random: Random) -> Any:
    """A JSON value with one to five of its values changed, removed, duplicated or moved. `tree` is not
    changed.
    """
    tree = json.loads(json.dumps(tree))
    if random.random() < 0.6:  # change one number or string only
        leaves = [(holder, key) for holder, key in _places(tree) if not isinstance(holder[key], (list, dict))]
        for holder, key in random.sample(leaves, min(len(leaves), random.choice((1, 1, 1, 2)))):
            holder[key] = _another(holder[key], random)
        return tree
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        holders = [(None, None), *_places(tree)]
        if len(holders) > 20_000:
            break
        holder, key = random.choice(holders)
        if holder is None:
            if random.random() < 0.02:
                tree = _value(random)
            continue
        value, kind = holder[key], random.randrange(8)
        if kind <= 2:
            holder[key] = _another(value, random)
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, list):
            count = random.choice((1, 2, 50))
            holder[key:key] = [json.loads(json.dumps(value)) for _ in range(count)]
        elif kind == 4:
            holder[random.choice(("x", "array", f"{key} ", key.upper()))] = json.loads(json.dumps(value))
        elif kind == 5:
            other, at = random.choice(holders[1:])
            holder[key] = json.loads(json.dumps(other[at]))
        elif kind == 6 and random.random() < 0.1:
            for _ in range(random.choice((5, 40, 150))):
                value = [value] if random.random() < 0.8 else {"a": value}
            holder[key] = value
        elif isinstance(value, str):
            text = harmed(value.encode("utf8", "surrogatepass"), random, [b""])[:100_000]
            holder[key] = text.decode("utf8", "replace")
        else:
            holder[key] = _value(random)
    return tree


def _value(random: Random) -> Any:
    """A new copy of one of _VALUES, which the caller may change."""
    return copy.deepcopy(random.choice(_VALUES))


def _another(value: Any, random: Random) -> Any:
    """A random value, mostly of the same kind."""
    if isinstance(value, bool) or value is None or random.random() < 0.2:
        return _value(random)
    if isinstance(value, int):
        return random.choice(
            (-1, value + 1, value - 1, -value, value * 2, *_NUMBERS, *_EXTREMES, float(value))
        )
    if isinstance(value, float):
        return random.choice((0.0, 1.0, -1.0, -value, 1e300, 1e-300, 1e18, 2.0, 0.9999999999999999, 1))
    if isinstance(value, str):
        number = str(random.choice((*_NUMBERS, *_EXTREMES, -1)))
        return random.choice((number, f"({number}, {number})", value + value, value[:-1], value.swapcase()))
    return _value(random)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        for key in keys:
            found.append((here, key))
            waiting.append(here[key])
    return found
