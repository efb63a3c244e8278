"""Chromium over its debugging pipe: loads a file, measures it, and takes screenshots."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
QUIET = ("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")

MEASURE = """
(() => {
  const width = innerWidth, bad = [];
  const text = (node) => node.textContent.trim().slice(0, 40);
  const name = (node) => `${node.tagName}.${node.getAttribute("class") ?? ""} "${text(node)}"`;
  const scrolls = (node) => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const inScroll = ({ parentElement: outer }) => outer && (scrolls(outer) || inScroll(outer));
  const shown = (node) => node.checkVisibility() && node.getClientRects().length > 0;
  const whole = document.documentElement.scrollWidth;
  if (whole > width) bad.push(`the page is ${whole} wide`);
  for (const node of document.body.querySelectorAll("*")) {
    if (!shown(node) || node.tagName === "TITLE") continue;
    const box = node.getBoundingClientRect();
    const beyond = box.left < -1 || box.right > width + 1;
    if (beyond && !inScroll(node)) bad.push(`beyond the page: ${name(node)}`);
    const style = getComputedStyle(node);
    const cut = node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 && style.display !== "inline";
    if (cut && !node.closest("svg") && !scrolls(node)) bad.push(`content is wider: ${name(node)}`);
    const meant = node.closest(".code") || node.querySelector(".heat");
    if (cut && scrolls(node) && !meant) bad.push(`scrolls: ${name(node)}`);
    const blocks = [...node.children].filter((one) => shown(one) && getComputedStyle(one).display !== "inline"
      && !["TITLE", "line", "path", "circle"].includes(one.tagName));
    const boxes = blocks.map((one) => [one, one.getBoundingClientRect()]);
    boxes.forEach(([one, a], i) => boxes.slice(i + 1, i + 9).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1.5 && down > 1.5) bad.push(`overlap: ${name(one)} and ${name(other)}`);
    }));
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!shown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((one) => [one, one.getBoundingClientRect()]);
    texts.forEach(([one, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1) bad.push(`beyond its figure: ${name(one)}`);
      texts.slice(i + 1).forEach(([other, b]) => {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) bad.push(`labels overlap: ${name(one)} and ${name(other)}`);
      });
    });
  }
  return [...new Set(bad)].slice(0, 12);
})()
"""
OPEN_ALL = """
(async () => {
  for (let i = 0; i < 3; i++) {
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    for (let n = 0; n < 200 && document.querySelector("details[open] > .body:empty"); n++)
      await new Promise((done) => setTimeout(done, 20));
  }
})()
"""


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One page; commands of the Chrome DevTools Protocol."""

    def __init__(self, to: BinaryIO, answers: BinaryIO) -> None:
        self._to, self._from, self._sent, self._session = to, answers, 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (char := self._from.read(1)) not in (b"\0", b""):
            text += char
        assert text, "the browser has ended"
        found: dict[str, Any] = json.loads(text)
        return found

    def send(self, method: str, **params: object) -> dict[str, Any]:
        self._sent += 1
        made = {"id": self._sent, "method": method, "params": params}
        if self._session:
            made["sessionId"] = self._session
        self._to.write(json.dumps(made).encode() + b"\0")
        self._to.flush()
        while (found := self._next()).get("id") != self._sent:
            self.events.append(found)
        assert "error" not in found, found
        result: dict[str, Any] = found["result"]
        return result

    def open(self, path: Path, width: int, scheme: str = "light", *, script: bool = True) -> None:
        """Load a file at a width in CSS pixels."""
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        made = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in made, made
        return made["result"].get("value")

    def messages(self) -> list[str]:
        """What the console said, and requests other than for the page."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        said = [json.dumps(event) for event in self.events if event.get("method") in kinds]
        asked = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return said + [one["request"]["url"] for one in asked if one["type"] != "Document"]

    def screenshot(self, path: Path, height: int = 0) -> None:
        """The page from its top: `height` pixels of it, or all."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or min(size["height"], 12_000)}
        made = self.send("Page.captureScreenshot", clip=clip | {"scale": 1}, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def page(browser: str, profile: Path) -> Iterator[Page]:
    """A browser that ends with the block."""
    theirs, ours = os.pipe()
    answers, theirs_out = os.pipe()
    command = [browser, *FLAGS, *QUIET, f"--user-data-dir={profile}"]
    wrapped = ["bash", "-c", 'exec "$@" 3<&%d 4>&%d' % (theirs, theirs_out), "-", *command]  # noqa: UP031
    started = subprocess.Popen(wrapped, pass_fds=(theirs, theirs_out), stderr=subprocess.DEVNULL)
    os.close(theirs)
    os.close(theirs_out)
    try:
        with os.fdopen(ours, "wb") as to, os.fdopen(answers, "rb") as read:
            made = Page(to, read)
            yield made
            made._session = ""
            made.send("Browser.close")
    finally:
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
