"""All readers of files: sound files, how one is corrupted, and how the result is used.

`use(data, folder)` reads the bytes and then uses the result, since errors may show only later: shapes are
inferred, arrays become numpy's, small networks are bound and run, optimizers step. It returns, or raises the
reader's errors.
"""

from __future__ import annotations

from torture.readers.kinds import arrays, images, kept, networks, records, states, symbols, text

ROOMS = (symbols, arrays, states, records, images, text, networks, kept)
READERS = {reader.name: reader for room in ROOMS for reader in room.READERS}
