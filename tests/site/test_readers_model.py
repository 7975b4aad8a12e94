"""Models of the reader's own, opened in the browser's scripts."""

import json
import shutil

import numpy as np
import pytest
import tangle
import torch
from parts import asked_of_node, run_of
from playwright.sync_api import expect
from safetensors.torch import load_file, save_file

from transformer_lib import (
    BPETokenizer,
    TokenBatches,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    Translator,
    encode_pairs,
    greedy_decode,
    load_corpus,
    save_model,
    train,
)

LIVE = tangle.ROOT / "web" / "live"
FILES = ["model.safetensors", "config.json", "tokenizer.json"]
ASK = """
import { readFileSync, writeFileSync } from "node:fs";
const [live, folder, text, out] = process.argv.slice(2);
const { FILES, read } = await import(`${live}/model.js`);
const { inside } = await import(`${live}/inside.js`);
const files = {};
for (const name of FILES) {
  try {
    const { buffer, byteOffset, byteLength } = readFileSync(
      `${folder}/${name}`);
    files[name] = buffer.slice(byteOffset, byteOffset + byteLength);
  } catch {}
}
try {
  const { about, files: found } = await inside(read(files), text);
  const written = {};
  for (const [name, numbers] of Object.entries(found))
    writeFileSync(`${out}/${name}`, Buffer.from(numbers().buffer));
  writeFileSync(`${out}/index.json`, JSON.stringify(about));
} catch (error) {
  console.log(error.message);
}
"""
SHIPPED = {  # and a sentence of each one's own kind
    "little-spanish": "The boy does not like my red key",
    "tatoeba-en-de": "He forgot his keys at home.",
}
OWN = dict(  # as a reader may have trained it
    norm="pre", positions="learned", tie="none", h=2, d_k=24, d_v=24
)


def look(folder, text, out) -> str:
    """What the scripts write of a model; what they said if they refuse."""
    out.mkdir()
    return asked_of_node(ASK, out, LIVE, folder, text, out).strip()


def folder_of(name, tmp_path):
    """Where a model is that ships, or one that is trained here."""
    if name in SHIPPED:
        return tangle.ROOT / "pretrained" / name
    corpus = load_corpus("little_spanish")[:300]
    tokenizer = BPETokenizer.train(corpus.sources + corpus.targets, 500)
    batches = TokenBatches(encode_pairs(corpus, tokenizer), 2000)
    tied = {} if name == "own" else {"tie": name}
    sizes = dict(N=2, d_model=64, d_ff=96) | OWN | tied
    model = Transformer(TransformerConfig.tiny(len(tokenizer), **sizes))
    train(model, batches, TrainingConfig(max_steps=30, warmup_steps=20))
    info = {"languages": ["en", "es"]}
    folder = tmp_path / "model"
    save_model(folder, model, tokenizer, half=True, info=info)
    return folder


@pytest.mark.parametrize("name", [*SHIPPED, "own", "three-way", "decoder"])
def test_numbers_are_the_librarys(name, tmp_path):
    """All that is shown: vectors, scores, weights, matrices, tokens."""
    folder = folder_of(name, tmp_path)
    text = SHIPPED.get(name, "I like trees")
    assert look(folder, text, tmp_path / "script") == ""
    script = json.loads((tmp_path / "script" / "index.json").read_text())
    translator = Translator.from_pretrained(folder, "cpu")
    model, tokenizer = translator.model, translator.tokenizer
    source_ids = torch.tensor(translator.encode([text]))
    model.requires_grad_(False)
    ids = greedy_decode(model, source_ids)[0][0].ids
    given, maps, shares = run_of(model, source_ids, ids)
    assert script["said"] == (tokenizer.decode(ids).strip() or "nothing")
    most = shares.max(-1)
    assert script["next"] == tokenizer.pieces(most.indices.tolist())
    assert np.allclose(script["sure"], most.values.detach(), atol=1e-3)
    ours = arrays(tmp_path / "script", script)
    for path, (x, *others) in given.items():
        same(ours[path], x[0], path)
        part = model.get_submodule(path)
        if path.endswith("feed_forward"):
            names = "w_1.weight", "w_1.bias", "w_2.weight", "w_2.bias"
            matrices = [part.get_parameter(one) for one in names]
            same_file(tmp_path / "script" / f"{path}.bin", matrices)
            continue
        memory = others[0]
        query = part.split(part.w_q(x))[0]
        key, value = (
            part.split(one(memory))[0] for one in (part.w_k, part.w_v)
        )
        same(ours[f"{path}.q"], query, path)
        same(ours[f"{path}.k"], key, path)
        same(ours[f"{path}.v"], value, path)
        score = query @ key.mT / query.size(-1) ** 0.5
        same(ours[f"{path}.score"], score, path)
        same(ours[f"{path}.weight"], maps[path], path)
        may = maps[path][0] > 0
        same(ours[f"{path}.may"], may, path)
        for head in range(part.h):
            layers = part.w_q, part.w_k, part.w_v
            rows = [one.weight.chunk(part.h)[head] for one in layers]
            same_file(tmp_path / "script" / f"{path}.{head}.bin", rows)


def same(ours, theirs, path) -> None:
    theirs = theirs.detach().float().numpy().flatten()
    size = max(1.0, np.abs(theirs).max())
    assert np.abs(ours - theirs).max() < 1e-4 * size, path


def same_file(path, weights) -> None:
    data = b"".join(one.detach().numpy().tobytes() for one in weights)
    assert path.read_bytes() == data, path.name


def arrays(folder, index) -> dict[str, np.ndarray]:
    numbers = np.fromfile(folder / "numbers.bin", "<f4")
    sizes = [int(np.prod(shape)) for _, shape in index["arrays"]]
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    names = [name for name, _ in index["arrays"]]
    return dict(zip(names, parts, strict=True))


WITHOUT_LANGUAGES = """
const [live] = process.argv.slice(2);
const { called } = await import(`${live}/model.js`);
const { describe } = await import(`${live}/own_model.js`);
const { split } = await import(`${live}/split.js`);
const languages = ["", ""];
const { title } = describe({
  sizes: {}, info: { languages }, languages: languages.map(called) });
console.log(JSON.stringify([title, split("I run. You run.", "")]));
"""


def test_a_model_need_not_say_its_languages(tmp_path):
    """`Translator` saves two empty names where it was told none."""
    said = asked_of_node(WITHOUT_LANGUAGES, tmp_path, LIVE)
    assert json.loads(said) == ["", ["I run.", "You run."]]


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def other_tokenizer(folder):
    other = tangle.ROOT / "pretrained" / "multi30k-de-en" / "tokenizer.json"
    shutil.copy(other, folder)


def changed(change):
    """Another config.json."""

    def spoil(folder):
        path = folder / "config.json"
        note = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(note | change(note["model"])), "utf-8")

    return spoil


def other_weight(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["encoder.layers.0.gate.weight"] = torch.ones(3, 3)
    save_file(weights, path)


OTHER_PARTS = ["Mine", "encoder.layers.0: Gated"]


@pytest.mark.parametrize(
    "spoil, words",
    [
        (cut, "model.safetensors is no such file, or was cut off"),
        (other_tokenizer, "they are of two models"),
        (
            changed(lambda model: {"model": model | {"N": 3}}),
            "has no decoder.layers.2",
        ),
        (
            changed(lambda model: {"class": "Mine"}),
            "of a class of your own (Mine)",
        ),
        (
            changed(lambda model: {"parts": OTHER_PARTS}),
            "of a class of your own (Mine)",
        ),
        (
            changed(lambda model: {"model": model | {"positions": "rotary"}}),
            "positions=rotary. This page does not know that",
        ),
        (other_weight, "has encoder.layers.0.gate.weight, which no model"),
    ],
)
def test_wrong_files_are_refused_in_words(spoil, words, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tangle.ROOT / "pretrained" / "little-spanish", folder)
    spoil(folder)
    said = look(folder, "I like trees", tmp_path / "script")
    assert words in said or words.replace("decoder", "encoder") in said


def test_a_model_is_opened_in_the_page(visit):
    """First the shipped one with another sentence; then one's own."""
    page = visit("book/start/sentence.html")
    zoom = page.locator(".live[data-live=zoom]")
    zoom.locator("summary", has_text="Another sentence").click()
    field = zoom.get_by_label("Another sentence")
    field.fill("We sell trees")
    field.press("Enter")
    note = zoom.locator(".live-note")
    expect(note).to_have_text(
        "“We sell trees” becomes “Vendemos árboles”.", timeout=60_000
    )
    folder = tangle.ROOT / "pretrained" / "tatoeba-en-de"
    picker = zoom.locator("input[type=file]")
    picker.set_input_files([folder / name for name in FILES[:2]])
    expect(note).to_contain_text("tokenizer.json is missing")
    picker.set_input_files([folder / name for name in FILES])
    expect(note).to_contain_text("Your model: N=4, d_model=128, h=4")
    field.fill("I lost my umbrella.")
    field.press("Enter")
    expect(note).to_contain_text("Schirm verloren.”", timeout=60_000)
    zoom.locator("[data-part='decoder.4.cross_attention']").click()
    zoom.locator("[data-part='4']").wait_for()


def test_a_folder_is_dropped_on_a_part(visit):
    """As a mouse drops it: anywhere on the figure, files or their folder."""
    page = visit("book/translating/beams.html")
    part = page.locator(".live[data-live=beams]")
    part.locator("summary", has_text="own").wait_for()
    note = part.locator(".live-note").first
    folder = tangle.ROOT / "pretrained" / "little-spanish"
    for what, words in [
        ([folder / FILES[0]], "config.json is missing"),
        ([folder], "Your model: N=2"),
        ([folder / name for name in FILES], "Your model: N=2"),
    ]:
        drop(page, part, what)
        expect(note).to_contain_text(words)
        assert page.locator(".live[data-live=beams]").is_visible()


def drop(page, part, paths):
    """Let files fall on a part, once the page around it is at rest."""
    centre = "block: 'center', behavior: 'instant'"
    fold = part.locator("summary", has_text="own")
    before, box = None, fold.bounding_box()
    while box != before:
        before = box
        fold.evaluate(f"fold => fold.scrollIntoView({{ {centre} }})")
        page.wait_for_timeout(200)
        box = fold.bounding_box()
    place = {"x": box["x"] + 20, "y": box["y"] - 20}  # beside it
    assert part.evaluate(
        "(part, at) => part.contains(document.elementFromPoint(at.x, at.y))",
        place,
    )
    data = {
        "items": [],
        "files": [str(path) for path in paths],
        "dragOperationsMask": 1,
    }
    tools = page.context.new_cdp_session(page)
    # A mouse sends more than one dragOver; the last says what is allowed.
    for kind in ["dragEnter", "dragOver", "dragOver", "drop"]:
        tools.send(
            "Input.dispatchDragEvent", {"type": kind, "data": data, **place}
        )


def give(part):
    """Hand a part the three files of a model, as a reader would."""
    part.locator("summary", has_text="With a model of your own").click()
    folder = tangle.ROOT / "pretrained" / "little-spanish"
    part.locator("input[type=file]").set_input_files(
        [folder / name for name in FILES]
    )
    note = part.locator(".live-note", has_text="Your model: N=2")
    expect(note).to_contain_text("from English to Spanish")


def translate(part, text, output):
    """Write a sentence for the model, and wait for what it makes of it."""
    field = part.get_by_label("A sentence for it")
    field.fill(text)
    field.press("Enter")
    note = part.locator(".live-note")
    expect(note).to_contain_text(output, timeout=60_000)


@pytest.mark.parametrize(
    ("name", "page", "place"),
    [
        ("translate", "index.html", ".live-table tbody"),
        ("beams", "book/translating/beams.html", ".live-table tbody"),
        ("cover", "index.html", ".cover-target"),
    ],
)
def test_a_part_shows_what_it_writes(visit, name, page, place):
    """And no address tells of a model that nobody else has."""
    part = visit(page).locator(f".live[data-live={name}]")
    if name == "cover":
        part.get_by_role("button", name="Your own sentence").click()
    give(part)
    field = part.locator("input:not([type]), input[type=text]").last
    field.fill("We sell trees")
    field.press("Enter")
    if name == "beams":
        expect(part.locator(".live-note")).to_contain_text("Vendemos")
        part.get_by_role("slider").press("End")
    shown = part.locator(place).first
    expect(shown).to_contain_text("Vendemos árboles", timeout=60_000)
    assert "#" not in part.page.url
    if name == "beams":
        chosen = part.locator(".live-which option:checked")
        names = ["English to Spanish (your own)", "We sell trees"]
        assert chosen.all_text_contents() == names


def test_its_decoding_is_played(visit):
    """And goes on from another bar."""
    page = visit("book/translating/decoding.html", reduced_motion="reduce")
    part = page.locator(".live[data-live=play]")
    part.locator("summary", has_text="own").wait_for()
    give(part)
    translate(part, "We sell trees", "Vendemos árboles")
    part.get_by_role("button", name="Step", exact=True).click()
    told = part.locator(".play-told")
    expect(told).to_contain_text("Step 1 of")
    part.locator(".play-bars button").nth(1).click()
    expect(told).to_contain_text("you picked")
    part.get_by_role("button", name="The model's own choice").click()
    expect(told).to_contain_text("is the likeliest")


def test_its_heads_can_be_seen(visit):
    page = visit("book/results/attention_maps.html")
    part = page.locator(".live[data-live=attention]")
    part.locator("summary", has_text="own").wait_for()
    give(part)
    translate(part, "I like trees", "Me gustan los árboles")
    part.get_by_role("button", name="layer 2, head 2", exact=True).click()
    part.get_by_role("button", name="gustan", exact=True).click()
    expect(part.locator(".live-result")).to_contain_text(
        "gustan looked at trees 100"
    )
    assert "#" not in page.url
    model = part.get_by_label("model", exact=True)
    assert model.input_value() == "your own"
    model.select_option(index=1)  # and back from it
    expect(part.locator(".live-result")).not_to_contain_text("gustan")
