"""A real headless Chromium, spoken to over WebDriver with the standard library alone."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One tab. Everything waits: for an element, for a text, for a condition."""

    def __init__(self, base: str, session: str) -> None:
        self._base = f"{base}/session/{session}"
        self.n_clicks = 0
        """Since the page was last drawn anew."""

    def open(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def draw(self, url: str) -> None:
        """Open an address anew and wait until the page has drawn itself."""
        self.open("about:blank")
        self.open(url)
        self.n_clicks = 0
        self.wait("return document.getElementById('main')?.dataset.drawn")

    def run(self, script: str, *args: Any) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def run_async(self, script: str, *args: Any) -> Any:
        """The script's last argument is the function that ends it."""
        return self._call("POST", "/execute/async", {"script": script, "args": list(args)})

    def wait(self, script: str, *args: Any, seconds: float = 15.0) -> Any:
        """Run until it gives something that is true."""
        until_s = time.monotonic() + seconds
        while True:
            found = self.run(script, *args)
            if found:
                return found
            if time.monotonic() > until_s:
                page = self.run("return document.body.innerText.slice(0, 1500)")
                raise AssertionError(f"never became true: {script} {args}\n{page}")
            time.sleep(0.03)

    def see(self, selector: str, text: str = "", seconds: float = 15.0) -> None:
        """Wait for an element with a text in it."""
        script = """return [...document.querySelectorAll(arguments[0])]
            .some((one) => one.textContent.includes(arguments[1]))"""
        self.wait(script, selector, text, seconds=seconds)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first such element as a person does: only if it can be reached."""
        self.see(selector, text)
        script = """const found = [...document.querySelectorAll(arguments[0])]
            .find((one) => one.textContent.includes(arguments[1]));
            found.scrollIntoView({ block: "center" }); return found"""
        element = self.run(script, selector, text)[_ELEMENT]
        self._call("POST", f"/element/{element}/click", {})
        self.n_clicks += 1

    def choose(self, selector: str, value: str) -> None:
        script = """const one = document.querySelector(arguments[0]); one.value = arguments[1];
            one.dispatchEvent(new Event("change", { bubbles: true }))"""
        self.run(script, selector, value)

    def press(self, keys: str) -> None:
        for key in keys:
            actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
            source = {"type": "key", "id": "keyboard", "actions": actions}
            self._call("POST", "/actions", {"actions": [source]})

    def size(self, width: int, height: int) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def theme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.cdp("Emulation.setEmulatedMedia", features=features)

    def picture(self, *, whole: bool = False) -> bytes:
        told = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(told["data"])

    def cdp(self, command: str, **params: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def requests(self) -> list[str]:
        """Addresses asked for since the last call."""
        logs = self._call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in logs]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def console(self) -> list[str]:
        """What the browser complained about since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def _call(self, method: str, path: str, body: Any) -> Any:
        return call(method, f"{self._base}{path}", body)


def call(method: str, url: str, body: Any) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        told = json.load(error)["value"]
        raise AssertionError(f"{told['error']}: {told['message'][:500]}") from error


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with a fresh profile; end it and all its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}", "--log-level=OFF"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with tempfile.TemporaryDirectory(
        prefix="assay-chromium-", ignore_cleanup_errors=True
    ) as profile:
        try:
            _until_ready(base)
            session = _session(base, Path(profile))
            try:
                yield Browser(base, session)
            finally:
                call("DELETE", f"{base}/session/{session}", None)  # ends the browser itself
        finally:
            driver.terminate()
            driver.wait(10)


def _session(base: str, profile: Path) -> str:
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={profile}"],
        },
        "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
    }
    told = call("POST", f"{base}/session", {"capabilities": {"alwaysMatch": wanted}})
    return str(told["sessionId"])


def _until_ready(base: str) -> None:
    until_s = time.monotonic() + 20
    while True:
        try:
            if call("GET", f"{base}/status", None)["ready"]:
                return
        except OSError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.05)
