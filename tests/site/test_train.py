"""The model that learns in the page, beside the page's own in PyTorch."""

import json
import shutil
import subprocess

import jupytext
import pytest
import tangle
import torch

LIVE = tangle.ROOT / "web" / "live"
DATA = tangle.ROOT / "transformer_lib" / "data"
PAGE = tangle.ROOT / "book" / "start" / "one_sitting.md"
STEPS, BATCH = 20, 64
ASK = """
import { readFileSync as read } from "node:fs";
const [live, data, given] = process.argv.slice(2);
const { Learner, batch } = await import(`${live}/learner.js`);
const texts = ["little_spanish", "little_people"].map((name) =>
  read(`${data}/${name}.tsv`, "utf8"));
const learner = await Learner.open(read(`${live}/mm.wasm`), texts);
const { model, train, vocabulary } = learner;
const asked = JSON.parse(read(given, "utf8"));
model.start(0);
for (const [name, numbers] of Object.entries(asked.weights))
  model.weights[name].data.set(numbers);
const all = (which) => Object.fromEntries(
  Object.entries(model.weights).map(([name, weight]) =>
    [name, Array.from(weight[which])]));
const losses = [];
let grads;
for (const chosen of asked.chosen) {
  losses.push(model.gradients(batch(chosen.map((i) => train[i]))));
  grads ??= all("grad");
  model.update();
}
console.log(JSON.stringify(
  { vocabulary, count: model.count, losses, grads, after: all("data") }));
"""


def test_the_kernels_text_assembles_to_the_shipped_bytes(monkeypatch):
    monkeypatch.syspath_prepend(str(tangle.ROOT / "web"))
    import assemble

    text = (LIVE / "mm.wat").read_text("utf-8")
    assert assemble.assemble(text) == (LIVE / "mm.wasm").read_bytes()


@pytest.fixture(scope="module")
def page() -> dict:
    """What the page defines before it trains."""
    found: dict = {}
    for cell in jupytext.read(PAGE).cells:
        if cell.source.startswith("optimizer ="):
            return found
        if cell.cell_type == "code" and "plt." not in cell.source:
            exec(compile(cell.source, str(PAGE), "exec"), found)
    raise AssertionError("the page has no optimizer")


@pytest.fixture(scope="module")
def both(page, tmp_path_factory) -> tuple[dict, dict]:
    """20 steps on the same batches: PyTorch's numbers, and the script's."""
    node = shutil.which("node") or shutil.which(
        "node", path=str(tangle.ROOT / ".venv" / "bin")
    )
    if not node:
        pytest.skip("no node")
    model, pairs = page["model"], page["train_pairs"]
    chance = torch.Generator().manual_seed(5)
    chosen = torch.randint(len(pairs), (STEPS, BATCH), generator=chance)

    def all_of(which):
        named = model.named_parameters()
        return {name: which(one).flatten().tolist() for name, one in named}

    folder = tmp_path_factory.mktemp("train")
    given = {"weights": all_of(torch.detach), "chosen": chosen.tolist()}
    (folder / "given.json").write_text(json.dumps(given), "utf-8")
    (folder / "ask.mjs").write_text(ASK, "utf-8")
    done = subprocess.run(
        [node, folder / "ask.mjs", LIVE, DATA, folder / "given.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    torchs: dict = {"losses": []}
    for step, row in enumerate(chosen.tolist(), 1):
        source, target, labels = page["batch"]([pairs[i] for i in row])
        loss = page["smoothed_loss"](model(source, target), labels)
        adam.zero_grad()
        loss.backward()
        torchs.setdefault("grads", all_of(lambda one: one.grad.clone()))
        adam.param_groups[0]["lr"] = page["learning_rate"](step)
        adam.step()
        torchs["losses"].append(loss.item())
    torchs["after"] = all_of(torch.detach)
    return torchs, json.loads(done.stdout)


def farthest(ours: dict, theirs: dict) -> float:
    """The largest difference; rows beyond the vocabulary are room."""
    assert ours.keys() == theirs.keys()
    far = 0.0
    for name, numbers in theirs.items():
        ours_here = torch.tensor(ours[name])
        assert not ours_here[len(numbers) :].any()
        apart = ours_here[: len(numbers)] - torch.tensor(numbers)
        far = max(far, apart.abs().max().item())
    return far


def test_it_is_the_model_of_the_page(page, both):
    assert both[1]["vocabulary"] == page["vocabulary"]
    assert both[1]["count"] == page["count"]


def test_loss_and_gradients_are_pytorchs(both):
    torchs, script = both
    assert abs(script["losses"][0] - torchs["losses"][0]) < 1e-4
    assert farthest(script["grads"], torchs["grads"]) < 1e-4


def test_twenty_steps_of_adam_are_pytorchs(both):
    torchs, script = both
    apart = zip(script["losses"], torchs["losses"], strict=True)
    assert max(abs(a - b) for a, b in apart) < 1e-3
    assert farthest(script["after"], torchs["after"]) < 1e-3
