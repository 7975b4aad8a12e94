"""The model that learns in the page, beside the page's own in PyTorch."""

import base64
import json
import os
import re
import shutil
import subprocess

import jupytext
import numpy as np
import pytest
import tangle
import torch
from parts import asked_of_node
from torch import nn

LIVE = tangle.ROOT / "web" / "live"
RUN = tangle.ROOT / "web" / "recorded" / "train.json"
DATA = tangle.ROOT / "transformer_lib" / "data"
PAGE = tangle.ROOT / "book" / "start" / "one_sitting.md"
STEPS, BATCH = 4, 32
CHAPTER = "book/start/learning.html"
PART = ".live[data-live=train]"
TRANSLATION = "Me gustan los árboles"  # of "I like trees"
EDITS = {  # what the page's table "Break it" says, by the switch's name
    "": ("", ""),
    "positions": ("scaled + sinusoids(ids.size(1), self.d_model)", "scaled"),
    "mask": (", dtype=torch.bool).tril()", ", dtype=torch.bool)"),
    "root": ("query @ key.mT / math.sqrt(query.size(-1))", "query @ key.mT"),
    "norm": ("nn.LayerNorm(d_model)", "nn.Identity()"),
    "residual": ("x + self.", "self."),
}
FETCHED = "train_worker learner mm.js little_ transformer.js zoom".split()
ASK = """
import { readFileSync as read, writeFileSync as write } from "node:fs";
const [live, data, folder] = process.argv.slice(2);
const { Learner, batch } = await import(`${live}/learner.js`);
const texts = ["little_spanish", "little_people"].map((name) =>
  read(`${data}/${name}.tsv`, "utf8"));
const learner = new Learner(texts);
const { model, train, vocabulary } = learner;
const { sizes, chosen, without } = JSON.parse(
  read(`${folder}/given.json`, "utf8"));
learner.start(0, without);
const given = new Float32Array(
  new Uint8Array(read(`${folder}/given.bin`)).buffer);
let place = 0;
for (const [name, size] of sizes) {
  model.weights[name].data.set(given.subarray(place, place + size));
  place += size;
}
const all = Object.entries(model.weights).filter(
  ([name]) => !/^(target_embedding|pre_softmax)/.test(name)); // tied
const keep = (which) => write(`${folder}/${which}.bin`, Buffer.concat(
  all.map(([, weight]) => new Uint8Array(Float32Array.from(
    weight[which]).buffer))));
const losses = [];
for (const rows of chosen) {
  losses.push(model.gradients(batch(rows.map((i) => train[i]))));
  if (losses.length === 1) keep("grad");
  model.update();
}
keep("data");
const room =
  model.weights["source_embedding.weight"].rows - vocabulary.length;
const lengths = all.map(([name, weight]) => [name, weight.data.length]);
console.log(JSON.stringify({ vocabulary, room, without, losses, lengths }));
"""


def test_the_kernels_text_is_what_runs(tmp_path):
    """mm.js holds the bytes that wat2wasm makes of mm.wat."""
    if not shutil.which("wat2wasm"):
        assert not os.environ.get("BROWSER_REQUIRED"), "no wat2wasm"
        pytest.skip("no wat2wasm")
    made = tmp_path / "mm.wasm"
    subprocess.run(["wat2wasm", LIVE / "mm.wat", "-o", made], check=True)
    script = (LIVE / "mm.js").read_text("utf-8")
    assert base64.b64decode(script.split("`")[1]) == made.read_bytes()


def name_of(name: str) -> str:
    """The library's name of a weight of the page's model."""
    if name == "table":
        return "source_embedding.weight"
    side, layer, rest = name.split(".", 2)
    if rest.startswith("norm_"):
        number, end = rest.removeprefix("norm_").split(".")
        rest = f"residuals.{int(number) - 1}.norm.{end}"
    return f"{side}.layers.{layer}.{rest}"


def defined(without: str = "") -> dict:
    """What the page defines before it trains, a part of it left out."""
    old, new = EDITS[without]
    found: dict = {}
    edited = 0
    for cell in jupytext.read(PAGE).cells:
        if cell.source.startswith("optimizer ="):
            assert edited or not without, f"{old!r} is not in the page"
            return found
        shown = "plt." in cell.source or "check" in cell.metadata.get(
            "tags", []
        )
        if cell.cell_type == "code" and not shown:
            source = cell.source.replace(old, new) if old else cell.source
            edited += source != cell.source
            exec(compile(source, str(PAGE), "exec"), found)
    raise AssertionError("the page has no optimizer")


@pytest.fixture(scope="module", params=EDITS)
def without(request) -> str:
    """The part that is left out, if one is."""
    return request.param


@pytest.fixture(scope="module")
def page(without) -> dict:
    return defined(without)


@pytest.fixture(scope="module")
def both(page, without, tmp_path_factory) -> tuple[dict, dict]:
    """Some steps on the same batches: PyTorch's numbers, and the script's."""
    model, pairs = page["model"], page["train_pairs"]
    chance = torch.Generator().manual_seed(5)
    chosen = torch.randint(len(pairs), (STEPS, BATCH), generator=chance)

    def all_of(which):
        named = model.named_parameters()
        return {
            name_of(name): which(one).flatten().clone() for name, one in named
        }

    folder = tmp_path_factory.mktemp("train")
    weights = all_of(torch.detach)
    given = {
        "sizes": [(name, len(one)) for name, one in weights.items()],
        "chosen": chosen.tolist(),
        "without": [without] if without else [],
    }
    (folder / "given.json").write_text(json.dumps(given), "utf-8")
    torch.cat([*weights.values()]).numpy().tofile(folder / "given.bin")
    script = json.loads(asked_of_node(ASK, folder, LIVE, DATA, folder))
    names, lengths = zip(*script["lengths"], strict=True)
    for which in "grad", "data":
        numbers = np.fromfile(folder / f"{which}.bin", np.float32)
        parts = torch.from_numpy(numbers).split(lengths)
        script[which] = dict(zip(names, parts, strict=True))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    torchs: dict = {"losses": []}
    for step, row in enumerate(chosen.tolist(), 1):
        source, target, labels = page["batch"]([pairs[i] for i in row])
        loss = page["smoothed_loss"](model(source, target), labels)
        adam.zero_grad()
        loss.backward()
        torchs.setdefault("grad", all_of(lambda one: one.grad))
        adam.param_groups[0]["lr"] = page["learning_rate"](step)
        adam.step()
        torchs["losses"].append(loss.item())
    torchs["data"] = all_of(torch.detach)
    return torchs, script


def farthest(ours: dict, theirs: dict) -> float:
    """The largest difference; rows beyond the vocabulary are 0.

    A model without norms has no weights of theirs.
    """
    assert {name for name in ours if "norm" not in name or name in theirs} == (
        theirs.keys()
    )
    apart = []
    for name, numbers in theirs.items():
        beyond = len(ours[name]) - len(numbers)
        apart.append(ours[name] - nn.functional.pad(numbers, (0, beyond)))
    return max(one.abs().max().item() for one in apart)


def test_it_is_the_model_of_the_page(page, both):
    assert both[1]["vocabulary"] == page["vocabulary"]
    d_model, script = page["model"].d_model, both[1]
    numbers = sum(map(len, script["grad"].values()))
    if script["without"] != ["norm"]:
        assert numbers - d_model * script["room"] == page["count"]


def test_losses_gradients_and_adam_are_pytorchs(both):
    """The first loss and its gradients; then steps of Adam."""
    torchs, script = both
    apart = torch.tensor(script["losses"]) - torch.tensor(torchs["losses"])
    assert abs(apart[0]) < 1e-4 and apart.abs().max() < 1e-3
    assert farthest(script["grad"], torchs["grad"]) < 1e-4
    assert farthest(script["data"], torchs["data"]) < 1e-3


def opened(visit, **settings):
    """The chapter, at the part."""
    page = visit(CHAPTER, **settings)
    page.set_default_timeout(120_000)
    page.wait_for_selector(f"{PART} .train-facts")
    page.locator(PART).scroll_into_view_if_needed()
    return page


def press(page, name) -> None:
    page.locator(PART).get_by_role("button", name=name, exact=True).click()


def fact(page, place: int) -> str:
    return page.locator(f"{PART} .train-facts dd").nth(place).text_content()


def reached(page) -> int:
    return int(fact(page, 0).split()[0])


def wait_for_step(page, step: int) -> None:
    page.wait_for_function(
        """([part, step]) => {
          const facts = document.querySelectorAll(`${part} dd`);
          return parseInt(facts[0].textContent) >= step
            && document.querySelector(`${part} .train-which`)
              .textContent.match(/^(Training|Paused|Done)/);
        }""",
        arg=[PART, step],
    )


def told(page) -> list[list[str]]:
    """The rows of the run as a table."""
    details = page.locator(f"{PART} details")
    details.evaluate("details => { details.open = true }")
    page.wait_for_selector(f"{PART} details tbody tr")
    return details.locator("tbody").evaluate(
        """body => [...body.rows].map(
          row => [...row.cells].map(cell => cell.textContent))"""
    )


def status(page) -> str:
    return page.locator(f"{PART} .train-which").text_content()


PACE = """
const { readFileSync } = await import("node:fs");
const [live, data, ...names] = process.argv.slice(2);
const { seconds } = await import(`${live}/train_runs.js`);
const { Learner } = await import(`${live}/learner.js`);
const texts = names.map((name) => readFileSync(`${data}/${name}`, "utf8"));
const learner = new Learner(texts);
learner.start(0);
learner.step();
const begun = process.cpuUsage();
for (let i = 0; i < 10; i++) learner.step();
const { user, system } = process.cpuUsage(begun);
console.log(JSON.stringify([seconds(), (user + system) / 1e7]));
"""


COUNTS = """
const { came, spoken } = await import(`${process.argv[2]}/train_runs.js`);
const moments = [[50, 20], [57, null]].map(([step, exact]) => (
  { step, exact, loss: 2, said: "Me" }));
for (const told of [came, spoken])
  for (const count of [1, 2])
    console.log(told({ moments: moments.slice(0, count) }));
"""


def test_a_count_is_told_as_that_of_its_own_step(tmp_path):
    told = asked_of_node(COUNTS, tmp_path, LIVE).splitlines()
    assert ["right at step 50, " in line for line in told] == 2 * [False, True]


LOST = """
globalThis.onmessage = null;
globalThis.postMessage = ({ text }) => console.log(text);
await import(`${process.argv[2]}/train_worker.js`);
onmessage({ data: { kind: "open" } });
"""


def test_without_a_connection_it_says_so(tmp_path):
    """As here, where the pairs are not beside the scripts."""
    said = asked_of_node(LOST, tmp_path, LIVE)
    assert "could not be loaded. Is there still a connection" in said


def test_how_long_it_takes_is_what_a_step_takes(tmp_path):
    """Within a factor of three: what it says before the first step."""
    names = ["little_spanish.tsv", "little_people.tsv"]
    told = asked_of_node(PACE, tmp_path, LIVE, DATA, *names)
    said, taken = json.loads(told)
    assert 1 / 3 < said / taken < 3


def test_unpressed_a_recorded_run_plays_and_nothing_is_fetched(visit):
    """Unless the reader wants no motion; and how long a training takes."""
    page = opened(visit)
    page.wait_for_function(
        f"parseInt(document.querySelector('{PART} dd').textContent) > 20"
    )
    press(page, "Pause")
    still = reached(page)
    page.wait_for_timeout(800)
    assert reached(page) == still
    page = opened(visit, reduced_motion="reduce")
    page.wait_for_timeout(800)
    run = json.loads(RUN.read_text("utf-8"))
    assert fact(page, 0) == "0 of 800" and fact(page, 1) == "–"
    assert re.search(r"400 steps take about \d+ (seconds|min)", status(page))
    page.locator(f"{PART} input[type=range]").focus()
    page.keyboard.press("End")
    last = run["rows"][-1]
    assert reached(page) == last[0]
    assert fact(page, 1) == f"{last[1] / 1000:.2f}"
    assert status(page).startswith(f"Step {last[0]} of a run that was")
    # The recorded run has no weights to look into.
    look = page.get_by_role("button", name="Look inside your model")
    assert look.is_disabled()
    assert not [url for url in page.asked if any(n in url for n in FETCHED)]


def test_paused_before_it_is_seen_it_stays_so(visit):
    page = visit(CHAPTER, height=300)
    player = page.locator(PART).get_by_role("button", name="Play", exact=True)
    player.evaluate("one => { one.click(); one.click(); }")
    page.locator(f"{PART} .train-chart").scroll_into_view_if_needed()
    page.wait_for_timeout(800)
    assert reached(page) == 0


def test_the_recorded_run_is_what_the_page_tells():
    """A word again and again, nothing, ¿; right before step 150."""
    run = json.loads(RUN.read_text("utf-8"))
    said = {row[0]: run["said"][row[2]] for row in run["rows"]}
    assert len(set(said[20].split())) == 1 < len(said[20].split())
    assert not said[40] and said[60].startswith("¿")
    right = [step for step, text in said.items() if text == TRANSLATION]
    assert 100 < right[0] < 150


def test_a_part_is_left_out(visit):
    """The switch begins a new run; the run before stays to compare."""
    page = opened(visit)
    press(page, "Train it yourself")
    wait_for_step(page, 20)
    part = page.locator(PART)
    part.get_by_label("causal mask").check()
    page.wait_for_function(
        "part => document.querySelector(`${part} .train-which`)"
        ".textContent.includes('without causal mask')",
        arg=PART,
    )
    wait_for_step(page, 10)
    press(page, "Pause")
    kept = part.locator(".train-runs li").all_text_contents()
    assert len(kept) == 1 and kept[0].startswith("the whole model, seed 0: ")
    assert part.locator(".train-past").count() == 1
    look = page.get_by_role("button", name="Look inside your model")
    assert look.is_disabled()


def test_it_learns_pauses_and_repeats_itself_after_reset(visit, fits):
    page = opened(visit, width=360)
    before = page.url
    press(page, "Train it yourself")
    wait_for_step(page, 10)
    press(page, "Pause")
    page.get_by_role("button", name="Go on").wait_for()
    page.wait_for_timeout(800)  # the last step that was under way
    paused = reached(page)
    page.wait_for_timeout(800)
    assert reached(page) == paused
    press(page, "One step")
    wait_for_step(page, paused + 1)
    first = told(page)
    assert [row[0] for row in first[:2]] == ["0", "10"]
    fits(page, PART)
    press(page, "Reset")
    wait_for_step(page, 0)
    press(page, "Train it yourself")
    wait_for_step(page, 10)
    press(page, "Pause")
    assert told(page)[:2] == first[:2]
    assert page.url == before
