"""Chromium without a window, driven over two pipes by the DevTools protocol; nothing to install.

    with chromium() as browser:
        page = browser.open(path, width=400)
        page.evaluate("document.title")

Where there is no Chromium or Chrome, `find_chromium` gives None.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 60.0  # of one answer, on a machine with other work
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-sandbox",  # refuses to start for root, as in containers
    "--hide-scrollbars",
    "--font-render-hinting=none",
)
# The browser reads descriptor 3 and writes 4; what lies there may be what is to come there.
_ON_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The browser's program: CHROMIUM if it is set, else the first that is installed."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@dataclass
class Browser:
    """A running browser.

    Attributes:
      reading: End of the pipe that it writes to.
      writing: End of the pipe that it reads from.
    """

    reading: int
    writing: int
    _rest: bytes = b""
    _number: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)

    def open(
        self, path: Path, *, width: int = 1300, height: int = 900, dark: bool = False,
        fragment: str = "",
    ) -> Page:  # fmt: skip
        """Open a file and wait until it is drawn."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        page.ask("Network.enable")
        page.ask("Runtime.enable")
        page.ask("Page.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.ask("Emulation.setEmulatedMedia", features=[scheme])
        hash_ = f"#{fragment}" if fragment else ""
        page.ask("Page.navigate", url=path.resolve().as_uri() + hash_)
        page.wait("document.readyState === 'complete'")
        return page

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer.

        Raises:
          RuntimeError: It answers with an error, or not at all.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def events(self, session: str, method: str) -> list[dict[str, Any]]:
        """What a page has told so far."""
        self.ask("Target.getTargets")  # so that what came before is read
        return [
            event["params"]
            for event in self._events
            if event.get("sessionId") == session and event.get("method") == method
        ]

    def _next(self, method: str) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.reading], [], [], deadline - time.monotonic())
            part = os.read(self.reading, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError(f"{method}: the browser does not answer")
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@dataclass(frozen=True)
class Page:
    """An open page."""

    browser: Browser
    session: str
    target: str

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """As `Browser.ask`, of this page."""
        return self.browser.ask(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; of a promise, what it comes to.

        Raises:
          RuntimeError: It throws.
        """
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true.

        Raises:
          RuntimeError: It stays false.
        """
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"is not so after {seconds} s: {condition}")
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key, such as Enter or ArrowDown."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = codes.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind, key=key, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "",
            )  # fmt: skip

    def click(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size; narrow ones are phones."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def requests(self) -> list[str]:
        """Addresses that it asked for."""
        sent = self.browser.events(self.session, "Network.requestWillBeSent")
        return [one["request"]["url"] for one in sent]

    def complaints(self) -> list[str]:
        """Exceptions that nothing caught, and errors that it logged."""
        thrown = self.browser.events(self.session, "Runtime.exceptionThrown")
        logged = self.browser.events(self.session, "Runtime.consoleAPICalled")
        return [str(one["exceptionDetails"]) for one in thrown] + [
            str(one["args"]) for one in logged if one["type"] == "error"
        ]

    def overflow(self) -> list[str]:
        """What is wider than the window and does not scroll by itself."""
        found: list[str] = self.evaluate(
            """(() => {
              const wide = document.documentElement.clientWidth, found = [];
              if (document.documentElement.scrollWidth > wide) found.push("page");
              for (const one of document.querySelectorAll("body *")) {
                const box = one.getBoundingClientRect();
                if (!box.width || !box.height || box.right <= wide + 1) continue;
                let above = one.parentElement;
                while (above && getComputedStyle(above).overflowX === "visible") above = above.parentElement;
                const isKept = above && above !== document.body && above !== document.documentElement;
                const clipped = one.closest("svg") && one.tagName !== "svg";
                if (!isKept && !clipped) found.push(`${one.tagName} ${one.id} ${one.className}`);
              }
              return found;
            })()"""
        )
        return found

    def picture(self, *, whole: bool = True, most: int = 16_000) -> bytes:
        """The page as PNG: all of it, or what the window shows."""
        if not whole:
            found = self.ask("Page.captureScreenshot", format="png")
            return base64.b64decode(found["data"])
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": min(size["height"], most),
            "scale": 1,
        }
        found = self.ask(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        return base64.b64decode(found["data"])

    def pdf(self, *, paper: tuple[float, float] = (8.27, 11.69)) -> bytes:
        """The page as it is printed, on A4 unless another paper is given (inches)."""
        found = self.ask(
            "Page.printToPDF",
            paperWidth=paper[0], paperHeight=paper[1], printBackground=True, preferCSSPageSize=True,
        )  # fmt: skip
        return base64.b64decode(found["data"])

    def close(self) -> None:
        """Close it."""
        self.browser.ask("Target.closeTarget", targetId=self.target)


def pages_of(pdf: bytes) -> int:
    """How many pages a PDF of Chromium has."""
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf))


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it.

    Raises:
      RuntimeError: There is none, or it does not start.
    """
    program = find_chromium()
    if program is None:
        raise RuntimeError("no Chromium is installed")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        running = subprocess.Popen(
            [sys.executable, "-IS", "-c", _ON_PIPES, str(to_read), str(from_write), *words],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        os.close(to_read)
        os.close(from_write)
        try:
            browser = Browser(from_read, to_write)
            browser.ask("Browser.getVersion")
            yield browser
            browser.ask("Browser.close")
        finally:
            os.close(to_write)
            os.close(from_read)
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
