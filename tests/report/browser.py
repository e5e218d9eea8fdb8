"""Headless Chromium, driven over a pipe by its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
CODES = {
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
CONTROL = 2
SHIFT = 8


def find_chromium() -> str | None:
    """The browser's command, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab: what it asked the network for, what its console said."""

    def __init__(self, send: int, receive: int) -> None:
        self._send = send
        self._receive = receive
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(
        self, place: Path | str, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Load a file or an address at a width, with the light or the dark theme asked for, and
        wait for it.
        """
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call(
            "Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri()
        )
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> None:
        """Until an expression in the page is true."""
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({script})"):
            if time.monotonic() > until:
                raise TimeoutError(f"{script}: {self.evaluate('document.body.innerText')}")
            time.sleep(0.05)

    def press(self, key: str, held: int = 0) -> None:
        """A key; ``held``: CONTROL or SHIFT."""
        text = "\r" if key == "Enter" else key if len(key) == 1 and not held & CONTROL else ""
        told = {"key": key, "modifiers": held, "windowsVirtualKeyCode": CODES.get(key, 0)}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **told, **({"text": text} if text else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def requests(self, own: str = "file:") -> list[str]:
        """Addresses that were asked for since the page was opened, but for those that begin with
        ``own`` or data.
        """
        sent = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith((own, "data:"))]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        found = []
        for event in self.events:
            kind = event.get("method")
            about = event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"]))
            elif kind == "Runtime.consoleAPICalled" and about["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(str(about["args"]))
            elif kind == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(about["entry"]["text"])
        return found

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The page, or what fits on the screen, as PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)[
            "data"
        ]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
        )

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._receive, 1 << 20)
            if not part:
                raise RuntimeError("The browser has gone.")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(command: str, *flags: str) -> Iterator[Page]:
    """Start the browser with a profile of its own, and with more ``flags``; it ends with the
    block.
    """
    to_read, send = os.pipe()
    receive, to_write = os.pipe()
    profile = tempfile.mkdtemp()
    # The browser reads commands from descriptor 3 and answers on descriptor 4.
    start = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        ["bash", "-c", start, command, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Page(send, receive)
    finally:
        os.close(send)
        process.terminate()
        process.wait(timeout=30)
        os.close(receive)
        shutil.rmtree(profile, ignore_errors=True)
