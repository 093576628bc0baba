"""What this process and those that it starts can import: the checkout that this lies in, folders, wheels.

For commands on a machine where mxlite is not installed. It needs Python alone, so that it can run first.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def reach(folder: Path) -> None:
    """Look for packages in `folder` before all other places, here and in processes started from now on."""
    sys.path.insert(0, str(folder))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])


def bring(wheels: Path, site: Path) -> None:
    """Unpack `wheels` into `site` and reach it; say which on the error output.

    What cannot be unpacked is left out: that is no reason to measure or check nothing. Installers do more,
    for scripts and headers, which nobody needs here.
    """
    site.mkdir(exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site)
            _say(f"brought along: {wheel.name}")
        except (OSError, zipfile.BadZipFile) as error:
            _say(f"{wheel.name} cannot be unpacked: {error}")
    if not any(site.iterdir()):
        _say(f"{wheels} has no wheel that could be used.")
    reach(site)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
