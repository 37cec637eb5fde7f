"""A browser without a network, driven over two pipes: pages, what they fetch, and what they complain about.

`with browser(directory) as b: page = b.open(path)` starts one chromium, which many pages share. It speaks the DevTools
protocol over file descriptors 3 and 4 (JSON, each message ended by a NUL), so no websocket library is needed.
"""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=IsolateSandboxedIframes",  # sandboxed frames stay in the page's process: one session sees them
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_OWN = ("data:", "about:", "blob:")  # addresses that need neither a file nor a network

_KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}


@cache
def offline() -> tuple[str, ...]:
    """The command that takes the network away, where the system allows it."""
    unshare = shutil.which("unshare")
    if unshare and subprocess.run([unshare, "-n", "true"], capture_output=True).returncode == 0:
        return (unshare, "-n")
    return ()


@contextlib.contextmanager
def browser(directory: Path) -> "Iterator[Browser]":
    """Start a browser whose profile and log are kept in `directory`; it ends with the block."""
    assert BROWSER is not None, "needs a chromium executable on PATH"
    to_read, to_write = os.pipe(), os.pipe()

    def give_pipes() -> None:
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read[0], to_write[1])]
        os.dup2(ours[0], 3)
        os.dup2(ours[1], 4)

    command = [*offline(), BROWSER, *_OPTIONS, f"--user-data-dir={directory / 'profile'}", "about:blank"]
    with open(directory / "chromium.log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(3, 4), preexec_fn=give_pipes
        )
    os.close(to_read[0])
    os.close(to_write[1])
    made = Browser(to_read[1], to_write[0])
    try:
        yield made
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            made.call("Browser.close", timeout=5)
        os.close(to_read[1])
        os.close(to_write[0])
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Browser:
    """The connection: commands go out by number, events are handed to the page that they are about."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def open(
        self, source: Path | str, *, width: int = 1280, height: int = 1600, dark: bool = False, media: str = ""
    ) -> "Page":
        """Load a file or address in a fresh context, and wait until it is loaded and painted."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        self._pages[session] = page
        self.prepare(session)
        page.emulate(media=media, dark=dark)
        page.resize(width, height)
        page.go(source)
        return page

    def prepare(self, session: str) -> None:
        """Ask for everything that a page or a frame in another process reports."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable", session)
        self.send("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        self.send("Runtime.runIfWaitingForDebugger", session)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> int:
        """Send a command without waiting for its answer; returns its number."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return number

    def call(self, method: str, session: str | None = None, *, timeout: float = 60, **parameters: Any) -> Any:
        """Send a command and return its result."""
        number = self.send(method, session, **parameters)
        end = time.monotonic() + timeout
        while number not in self._answers:
            self.listen(end - time.monotonic(), f"no answer to {method}")
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def listen(self, seconds: float, complaint: str) -> None:
        """Take in what has arrived; raises TimeoutError when nothing does in time."""
        if seconds <= 0 or not select.select([self._read], [], [], seconds)[0]:
            raise TimeoutError(complaint)
        data = os.read(self._read, 1 << 20)
        if not data:
            raise BrokenPipeError(f"the browser ended: {complaint}")
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif page := self._pages.get(message.get("sessionId", "")):
                self._take(page, message["method"], message["params"], message["sessionId"])

    def _take(self, page: "Page", method: str, event: dict[str, Any], session: str) -> None:
        if method == "Target.attachedToTarget":
            self._pages[event["sessionId"]] = page
            self.prepare(event["sessionId"])
        else:
            page.take(method, event, session)

    def forget(self, page: "Page") -> None:
        """Drop a closed page's sessions."""
        self._pages = {session: other for session, other in self._pages.items() if other is not page}


class Page:
    """One page.

    Attributes:
        url: the address that was opened.
        requests: every other address that the page or a frame in it asked for, in order; `data:` and the like aside.
        console_errors: errors and warnings of the console, uncaught exceptions, and refusals of the content policy.
        load_seconds: time from the request to the load event.
    """

    def __init__(self, connection: Browser, session: str, context: str) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.console_errors: list[str] = []
        self.load_seconds = float("nan")
        self._connection, self._session, self._context = connection, session, context
        self._contexts: dict[tuple[str, int], dict[str, Any]] = {}
        self._loaded = False

    def take(self, method: str, event: dict[str, Any], session: str) -> None:
        """Note one event of the protocol."""
        if method == "Network.requestWillBeSent":
            url = event["request"]["url"].partition("#")[0]
            if url != self.url and not url.startswith(_OWN):
                self.requests.append(url)
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.console_errors.append(event["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert", "warning"):
            values = [str(value.get("value", value.get("description", ""))) for value in event["args"]]
            self.console_errors.append(" ".join(values))
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.console_errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.executionContextCreated":
            self._contexts[session, event["context"]["id"]] = event["context"]
        elif method == "Runtime.executionContextDestroyed":
            self._contexts.pop((session, event["executionContextId"]), None)
        elif method == "Runtime.executionContextsCleared":
            self._contexts = {key: value for key, value in self._contexts.items() if key[0] != session}
        elif method == "Page.loadEventFired" and session == self._session:
            self._loaded = True

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command of the protocol about this page."""
        return self._connection.call(method, self._session, **parameters)

    def go(self, source: Path | str, *, timeout: float = 60) -> None:
        """Load a file or an address into this page, and wait until it is loaded and painted."""
        self.url = (source.resolve().as_uri() if isinstance(source, Path) else source).partition("#")[0]
        self._loaded = False
        begin = time.monotonic()
        address = source.resolve().as_uri() if isinstance(source, Path) else source
        elsewhere = "loaderId" in self.call("Page.navigate", url=address)  # not so where only the part after # differs
        while elsewhere and not self._loaded:
            self._connection.listen(begin + timeout - time.monotonic(), f"{self.url} did not load")
        self.load_seconds = time.monotonic() - begin
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for so far is laid out and painted."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def until(self, condition: str, *, timeout: float = 20) -> None:
        """Wait until an expression holds; raises TimeoutError."""
        end = time.monotonic() + timeout
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"still not so: {condition}")
            time.sleep(0.02)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, or of the promise that it gives; the content policy does not apply."""
        return self._evaluate(script, self._session)

    def _evaluate(self, script: str, session: str, **where: Any) -> Any:
        answer = self._connection.call(
            "Runtime.evaluate", session, expression=script, awaitPromise=True, returnByValue=True, **where
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def evaluate_frames(self, script: str) -> list[Any]:
        """Return the value of an expression in each frame of the page, sandboxed ones too; the page's comes first."""
        default = [(key, data) for key, data in self._contexts.items() if data.get("auxData", {}).get("isDefault")]
        return [self._evaluate(script, session, contextId=number) for (session, number), _ in default]

    def resize(self, width: int, height: int = 1600) -> None:
        """Give the window another size, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, *, media: str = "", dark: bool = False, **features: str) -> None:
        """Show the page light or dark, as for `screen` or `print` where `media` says so, with other media features.

        Motion is reduced where nothing else is said, so that pages hold still.
        """
        wanted = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        wanted |= {name.replace("_", "-"): value for name, value in features.items()}
        listed = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=listed)

    def emulate_print(self, width: int = 794) -> None:
        """Show the page as it is printed; 794 pixels are the width of A4."""
        self.emulate(media="print")
        self.resize(width)
        self.settle()

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key: a letter, or `Tab`, `Enter`, `Escape`, `Home`, `End`, `ArrowLeft` and so on."""
        code, text = _KEYS.get(key) or (ord(key.upper()), key)
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that matches, after scrolling to it."""
        x, y = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = e.getBoundingClientRect();"
            f"return [r.x + r.width / 2, r.y + r.height / 2] }})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def accessibility_tree(self) -> list[dict[str, Any]]:
        """Return what a screen reader is told, in order: `role`, `name` and `properties` of each element."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                "properties": {entry["name"]: entry["value"].get("value") for entry in node.get("properties", ())},
            }
            for node in nodes
            if not node["ignored"]
        ]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the whole page, or of what the window shows."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(data["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"] if whole else None
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}} if size else {}

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF, on the paper that the page asks for."""
        data = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(data["data"]))

    def close(self) -> None:
        """Close the page and its context."""
        self._connection.call("Target.disposeBrowserContext", browserContextId=self._context)
        self._connection.forget(self)
