"""Each interactive figure once in Firefox, and once in WebKit.

Their details are tested in Chromium; here a part is opened, used once, and
has to answer. Firefox is spoken to by WebDriver BiDi and needs no driver.
WebKit is WebKitGTK's MiniBrowser under Xvfb, by its own driver. Where one
of them is missing, its tests skip.
"""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import pytest
from parts import given, patiently

websocket = pytest.importorskip("websocket")  # comes with jupyter_server
MINI = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
DRIVER = "/usr/bin/WebKitWebDriver"
HELP = """
const $ = (what) => document.querySelector(what);
const until = async (test, seconds = 60) => {
  for (let i = 0; i < 10 * seconds; i++) {
    const found = test();
    if (found) return found;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error("in vain: " + test);
};
const button = (part, text) =>
  until(() => [...document.querySelectorAll(`${part} button`)].find(
    (one) => one.textContent.trim() === text));
const says = (what, text) =>
  until(() => $(what)?.textContent.includes(text));
const fill = (input, text) => {
  input.value = text;
  input.dispatchEvent(new Event("input"));
};
"""
PARTS = {  # by name: the page, and how the part is used
    "cover": (
        "index.html",
        """(await button(".cover-source", "girl")).click();
        await until(() => $(".cover-target").innerText.replace(/\\s+/g, " ")
          .includes("Ein Mann in einem roten Kleid"));""",
    ),
    "translate": (
        "index.html#translate.model=little-spanish",
        """const field = await until(() => $("[data-live=translate] input"));
        fill(field, "I like trees");
        field.form.requestSubmit();
        await says("[data-live=translate] .live-result", "Me gustan los ár");
        """,
    ),
    "train": (
        "book/start/learning.html",
        """(await button("[data-live=train]", "Train it yourself")).click();
        await says(".train-which", "step 10");
        (await button("[data-live=train]", "Pause")).click();
        await says(".train-which", "Paused");""",
    ),
    "zoom": (
        "book/start/sentence.html",
        """const field = await until(() => $("[data-live=zoom] form input"));
        fill(field, "We sell trees");
        field.form.requestSubmit();
        await says("[data-live=zoom] .live-note", "Vendemos árboles");
        (await until(() => $("[data-part$=self_attention]"))).click();
        await until(() => $("[data-part='2']"));""",
    ),
    "editor": (
        "book/start/one_file.html",
        """const area = await until(() => $("[data-live=editor] textarea"));
        fill(area, "print(6 * 7)");
        (await button("[data-live=editor]", "Run")).click();
        await until(() => $("[data-live=editor] pre").textContent === "42",
          140);""",
    ),
    "broken": (
        "book/appendix/course.html",
        """(await until(() => $(".broken-code [value='2']"))).click();
        const point = "This line is wrong (a miss: −3)";
        (await button("[data-live=broken]", point)).click();
        await says("[data-live=broken] .live-result", "Yes: 10 points");""",
    ),
    "positions": (
        "book/architecture/positions.html",
        """await until(() => $("[data-part=positions] canvas"));
        const part = $("[data-part=positions]");
        const said = () => part.querySelector(".live-result")?.textContent;
        const before = await until(said);
        const slider = part.querySelectorAll("input[type=range]")[3];
        fill(slider, slider.max);
        await until(() => said() !== before);
        """,
    ),
    "masks": (
        "book/architecture/masks.html",
        """await until(() => $("[data-part=masks] pre"));
        const before = $("[data-part=masks] pre").textContent;
        const part = $("[data-part=masks]");
        [...part.querySelectorAll("[type=radio]")]
          .find((one) => !one.checked).click();
        await until(() => $("[data-part=masks] pre").textContent !== before);
        """,
    ),
    "drag": (
        "book/architecture/attention.html",
        """const handle = await until(
          () => $("[data-live=drag] [tabindex='0']"));
        const before = $("[data-live=drag]").textContent;
        handle.dispatchEvent(new KeyboardEvent("keydown",
          { key: "ArrowUp", bubbles: true, cancelable: true }));
        await until(() => $("[data-live=drag]").textContent !== before);""",
    ),
    "play": (
        "book/translating/decoding.html",
        """await until(() => $(".play-source li"));
        const slider = $("[data-live=play] input[type=range]");
        fill(slider, 2);
        await until(() => $(".play-target").children.length === 2);""",
    ),
    "beams": (
        "book/translating/beams.html",
        """await until(() => $("[data-live=beams] .live-result")?.textContent);
        (await button("[data-live=beams]", "Replay")).click();
        await says("[data-live=beams] .live-result", "Nothing is said yet");
        (await button("[data-live=beams]", "Step")).click();
        await says("[data-live=beams] .live-result", "Step 1 of");
        const slider = $("[data-live=beams] input[type=range]");
        fill(slider, slider.max);
        await says("[data-live=beams] .live-result", "The search stops");""",
    ),
    "attention": (
        "book/results/attention_maps.html",
        """const part = $("[data-live=attention]");
        const said = () => part.querySelector(".live-result")?.textContent;
        const before = await until(said);
        (await until(() => part.querySelectorAll(".live-word")[2])).click();
        await until(() => said() !== before);
        """,
    ),
}


def missing(what: str) -> None:
    """Skip, or fail where all browsers have to be there."""
    assert not os.environ.get("BROWSER_REQUIRED"), f"no {what}"
    warnings.warn(f"NO BROWSER: {what} is missing", stacklevel=2)
    pytest.skip(f"no {what}")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def started(command: list, folder: Path, **settings) -> subprocess.Popen:
    """A program with what it starts, to be ended together."""
    return subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder), **settings},
    )


def end(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Firefox:
    """One window, by WebDriver BiDi."""

    def __init__(self, folder: Path):
        program = shutil.which("firefox-esr") or shutil.which("firefox")
        if not program:
            missing("Firefox")
        port = free_port()
        options = f"--headless --no-remote --remote-debugging-port {port}"
        profile = ["--profile", str(folder)]
        self.process = started([program, *options.split(), *profile], folder)
        self.numbers = itertools.count(1)
        address = f"ws://127.0.0.1:{port}/session"
        self.socket = patiently(
            lambda: websocket.create_connection(
                address, timeout=150, suppress_origin=True
            ),
            self.process,
        )
        self.ask("session.new", capabilities={})
        made = self.ask("browsingContext.create", type="tab")
        self.window = made["context"]

    def ask(self, method, **parameters):
        number = next(self.numbers)
        order = {"id": number, "method": method, "params": parameters}
        self.socket.send(json.dumps(order))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def use(self, address: str, script: str) -> str:
        for url in "about:blank", address:  # a # alone loads nothing
            self.ask(
                "browsingContext.navigate",
                context=self.window,
                url=url,
                wait="complete",
            )
        found = self.ask(
            "script.evaluate",
            expression=f"(async () => {{ {HELP} {script} return 'used' }})()",
            target={"context": self.window},
            awaitPromise=True,
        )
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        return found["result"]["value"]

    def close(self):
        self.socket.close()
        end(self.process)


class WebKit:
    """One window of MiniBrowser, by WebDriver."""

    def __init__(self, folder: Path):
        if not MINI or not Path(DRIVER).exists() or not shutil.which("Xvfb"):
            missing("WebKitGTK's MiniBrowser, its driver, or Xvfb")
        display = f":{free_port() % 10_000 + 100}"
        self.screen = started(
            ["Xvfb", display, "-screen", "0", "1280x900x24"], folder
        )
        port = free_port()
        self.driver = started(
            [DRIVER, f"--port={port}"],
            folder,
            DISPLAY=display,
            WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS="1",
        )
        self.address = f"http://127.0.0.1:{port}/session"
        options = {"binary": str(MINI[-1]), "args": ["--automation"]}
        wanted = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        made = patiently(
            lambda: self.post("", {"capabilities": wanted}), self.driver
        )
        self.address += f"/{made['sessionId']}"
        self.post("/timeouts", {"script": 150_000, "pageLoad": 150_000})

    def post(self, path: str, order: dict):
        request = urllib.request.Request(
            self.address + path,
            json.dumps(order).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=180) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def use(self, address: str, script: str) -> str:
        for url in "about:blank", address:
            self.post("/url", {"url": url})
        whole = (
            "const done = arguments[arguments.length - 1];"
            f"(async () => {{ {HELP} {script} return 'used' }})()"
            ".then(done, (error) => done(String(error)))"
        )
        return self.post("/execute/async", {"script": whole, "args": []})

    def close(self):
        end(self.driver)
        end(self.screen)


@pytest.fixture(scope="module", params=[Firefox, WebKit])
def other(request):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        window = request.param(Path(folder))
        yield window
        window.close()


WIDTH = """
const frame = document.createElement("iframe");
frame.style = "border: 0; height: 844px; width: 390px";
frame.src = "/%s";
document.body.prepend(frame);
await new Promise((done) => (frame.onload = done));
const part = ".live :is(button, input, textarea)";
await until(() => frame.contentDocument.querySelector(part));
await new Promise((done) => setTimeout(done, 500));
const wide = frame.contentDocument.documentElement.scrollWidth;
if (wide > 390) throw new Error(`${wide} pixels`);
"""


@pytest.mark.parametrize("page", sorted({page for page, _ in PARTS.values()}))
def test_a_page_with_a_part_fits_a_phone(page, other, address):
    """In a frame: the window of WebKit's browser is never so narrow."""
    assert other.use(f"{address}/404.html", WIDTH % page) == "used"


@pytest.mark.parametrize("name", PARTS)
def test_a_part_answers(name, other, address):
    page, script = PARTS[name]
    if name == "editor" and "folder" not in given(page, name):
        missing("Python for the browser in the site")
    assert other.use(f"{address}/{page}", script) == "used"
