"""Every reader of files: files to begin with, how one is harmed, and what is done with what was read.

`use(data, folder)` reads the bytes and then uses the result, since what is wrong may show only later: shapes
are inferred, arrays become numpy's, small networks are bound and run, optimizers step. It returns, or raises
what the reader raises.
"""

from __future__ import annotations

from torture.readers.kinds import arrays, images, kept, networks, records, states, symbols, text

ROOMS = (symbols, arrays, states, records, images, text, networks, kept)
READERS = {reader.name: reader for room in ROOMS for reader in room.READERS}
