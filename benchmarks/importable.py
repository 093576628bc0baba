"""Import paths of this process and its children: the checkout that contains this file, folders, wheels.

For commands on a machine where mxlite is not installed. Uses only the standard library, so that it can run
first.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def reach(folder: Path) -> None:
    """Put `folder` first on the import path, of this process and of processes started from now on."""
    sys.path.insert(0, str(folder))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])


def bring(wheels: Path, site: Path) -> None:
    """Unpack `wheels` into `site` and `reach` it; reports each on the error output.

    Wheels that cannot be unpacked are skipped, so that the run can still measure or check the rest. Scripts
    and headers, which installers also handle, are not needed here.
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
