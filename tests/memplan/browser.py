"""A headless Chromium, driven by its DevTools protocol through a pipe, with nothing but the standard library.

One browser serves many pages. The protocol is JSON, each message ended by a zero byte:
https://chromedevtools.github.io/devtools-protocol/.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 60


class Browser:
    """Start it with a folder for its profile; `close` ends it."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        # The browser wants the pipe at descriptors 3 and 4: the shell moves its input and output there.
        self._process = subprocess.Popen(
            [
                "sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1',
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
                f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._number = 0
        self._rest = b""
        self._events: list[dict[str, Any]] = []

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (OSError, AssertionError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(PATIENCE_S)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            got = self._receive()
            if got.get("id") == number:
                assert "error" not in got, f"{method}: {got['error']}"
                result: dict[str, Any] = got["result"]
                return result
            self._events.append(got)

    def events(self, session: str) -> list[dict[str, Any]]:
        """What this page has reported so far."""
        return [e for e in self._events if e.get("sessionId") == session]

    def wait_for(self, method: str, session: str) -> None:
        while not any(e.get("method") == method for e in self.events(session)):
            self._events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        stop = time.monotonic() + PATIENCE_S
        pipe = self._process.stdout
        assert pipe is not None
        while b"\0" not in self._rest:
            ready, _, _ = select.select([pipe], [], [], max(0, stop - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE_S} s."
            more = os.read(pipe.fileno(), 1 << 16)
            assert more, "Chromium has closed its pipe."
            self._rest += more
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, path: Path, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        """A page from a file, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        page.settle()
        return page


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; AssertionError where it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait for two frames: what was asked for is drawn."""
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **params: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def screenshot(self, path: Path | None = None, *, whole: bool = False) -> bytes:
        """PNG of the window, or of the whole page."""
        png = base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        if path is not None:
            path.write_bytes(png)
        return png

    def complaints(self) -> list[str]:
        """Errors, and everything that the page has asked the network for."""
        found = []
        for event in self._browser.events(self._session):
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" or method == "Log.entryAdded":
                found.append(str(params))
            elif method == "Network.requestWillBeSent" and params["documentURL"] != params["request"]["url"]:
                found.append(f"asked for {params['request']['url'][:200]}")
        return found

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
