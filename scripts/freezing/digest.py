"""Digests: sixteen hexadecimal digits of SHA-256."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(*parts: Any) -> str:
    """Sixteen hexadecimal digits of SHA-256 of bytes, texts, or what JSON can write."""
    found = hashlib.sha256()
    for part in parts:
        if not isinstance(part, bytes):
            part = (part if isinstance(part, str) else json.dumps(part)).encode()
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def digest_of_array(array: Any) -> str:
    """Digest of an array's shape, type and bytes."""
    return digest(str(array.dtype), list(array.shape), array.tobytes())
