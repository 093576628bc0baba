"""A memory plan as one self-contained HTML page: the arena as address against time.

Names in a plan come out of files that anybody may have written. They reach the page as JSON in which no
character can end a script, the script shows them as text only, and a content security policy in the page lets
nothing run but this script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, TYPE_CHECKING

from ...core.bytesize import format_bytes
from ...core.disk.files import replacing
from .boxes import KINDS, kinds_in, MEANINGS
from .document import document

if TYPE_CHECKING:
    from ..plan import MemoryPlan

SCRIPTS = ("data.js", "arena.js", "details.js", "page.js")
MOST_BUFFERS = 240_000  # of all plans of a page together; about 4 MB


def write_html(
    plan: MemoryPlan, path: Any, plans: Sequence[MemoryPlan] = (), title: str = "Memory plan"
) -> None:
    """Write `page(...)` to `path`, whole or not at all."""
    text = page_of(plan, plans, title)
    with replacing(path, "w") as file:
        file.write(text)


def page_of(plan: MemoryPlan, plans: Sequence[MemoryPlan] = (), title: str = "Memory plan") -> str:
    """The page as text: `plan`, and a slider over `plans` for other budgets.

    If all plans together have more than MOST_BUFFERS buffers, some of `plans` are left out, evenly.
    """
    shown = thinned(plan, plans)
    data = document(shown, next(i for i, p in enumerate(shown) if p is plan), title)
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    folder = files(__package__) / "web"
    read = {name: (folder / name).read_text("utf-8") for name in ("page.html", "page.css", *SCRIPTS)}
    script = '"use strict";\n(() => {\n' + "\n".join(read[name] for name in SCRIPTS) + "\n})();\n"
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(read['page.css'])}",
        "style": read["page.css"],
        "summary": html.escape(plan.summary()),
        "key": _key(shown),
        "table": _table(plan),
        "data": text,
        "script": script,
    }
    # Everything is put in at once, so that no inserted text is searched for markers.
    pieces = read["page.html"].split("@@")
    return "".join(p if i % 2 == 0 else parts[p] for i, p in enumerate(pieces))


def thinned(plan: MemoryPlan, plans: Sequence[MemoryPlan]) -> list[MemoryPlan]:
    """`plan` and as many others as a page can carry, by peak, one for each peak and time."""
    different = {(p.peak_bytes, p.extra_time): p for p in plans}
    different[plan.peak_bytes, plan.extra_time] = plan
    others = [p for p in different.values() if p is not plan]
    others.sort(key=lambda p: (p.peak_bytes, p.extra_time))
    room = MOST_BUFFERS - len(plan.liveness.ranges)
    total = sum(len(p.liveness.ranges) for p in others)
    if total > room:
        fitting = max(0, room * len(others) // total)
        # The ends of the row are the most useful ones.
        last = len(others) - 1
        others = [others[i * last // max(1, fitting - 1)] for i in range(fitting)]
    return sorted([plan, *others], key=lambda p: (p.peak_bytes, -p.extra_time))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _key(plans: Sequence[MemoryPlan]) -> str:
    return "".join(
        f'<li><span class="swatch {kind}"></span>{html.escape(MEANINGS[kind])}</li>'
        for kind in KINDS
        if any(kind in kinds_in(p) for p in plans)
    )


def _table(plan: MemoryPlan) -> str:
    rows = [*plan.breakdown.items(), ("peak", plan.peak_bytes)]
    return "".join(
        f'<tr data-row="{html.escape(name)}"><th scope="row">{html.escape(name)}</th>'
        f"<td>{format_bytes(nbytes)}</td></tr>"
        for name, nbytes in rows
    )
