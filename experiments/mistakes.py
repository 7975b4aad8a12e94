"""How does each mistake of the course show in training?

    python experiments/mistakes.py --out runs/mistakes
    python experiments/mistakes.py --levels --out web/recorded

Plants every mistake that the page of the course names into that page's
twelve functions, one at a time, and trains for the page's 600 steps of
little Spanish: the loss that the mistaken code reports at the beginning
and at the end, how many of 100 test sentences greedy decoding translates
exactly (of 50 for mistakes in beam search), and the translation of "I like
trees". Mistakes in decoding are made with the page's own model.

With `--levels`, only those that "Which line is broken?" plays with, and all
that a player may look at: `broken.json`.
"""

import argparse
import json
import math
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jupytext

from transformer_lib.checkpoints import write_atomically

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "book/appendix/course.md"
TABLE = "table = torch.randn(vocab_size, d_model) / d_model**0.5\n"
SPLIT = "return x.unflatten(-1, (h, -1)).transpose(1, 2)"
NORMED = "norm_1(x + attention(x, x, mask))"
ENCODER = f"    x = {NORMED}\n    return norm_2(x + network(x))"
FORBIDDEN = "masked_fill(~mask, "
WEIGHTS = "grown = (scores - scores.amax(dim=-1, keepdim=True)).exp()"
SUM = "grown.sum(dim=-1, keepdim=True)"
MEMORY = "attend_memory(y, memory, source_mask)"

# sitting, mistake, (old text, new text) in the page's code
MISTAKES = [
    (0, "none"),
    (1, "no factor √d_model", ("* self.weight.size(1) ** 0.5", "")),
    (
        1,
        "the factor on scores too",
        ("@ self.weight.T", "@ self.weight.T * self.weight.size(1) ** 0.5"),
    ),
    (
        1,
        "two matrices",
        (TABLE, TABLE + "        self.other = nn.Parameter(table.clone())\n"),
        ("@ self.weight.T", "@ self.other.T"),
    ),
    (2, "i for 2i", ("10_000 ** (2 * i /", "10_000 ** (i /")),
    (
        2,
        "sines in one half",
        (
            "for a in angles for wave in (sin, cos)",
            "for wave in (sin, cos) for a in angles",
        ),
    ),
    (2, "counting from 1", ("in range(length)", "in range(1, length + 1)")),
    (3, "no root", (" / query.size(-1) ** 0.5", "")),
    (
        3,
        "a softmax over queries",
        (WEIGHTS, WEIGHTS.replace("-1", "-2")),
        (SUM, SUM.replace("-1", "-2")),
    ),
    (
        3,
        "0 for a forbidden score",
        (FORBIDDEN + 'float("-inf")', FORBIDDEN + "0.0"),
    ),
    (
        4,
        "heads cut along the words",
        (SPLIT, "return x.reshape(len(x), h, -1, x.size(-1) // h)"),
    ),
    (
        4,
        "heads joined without moving their axis back",
        (
            "heads.transpose(1, 2).flatten(2)",
            "heads.reshape(len(x), x.size(1), -1)",
        ),
    ),
    (4, "no w_o", (".flatten(2) @ w_o", ".flatten(2)")),
    (
        5,
        "True for forbidden",
        ("return padding, triangle &", "return ~padding, ~triangle |"),
        ("(target_ids != 0)", "(target_ids == 0)"),
    ),
    (5, "an open future", (".tril()", "")),
    (5, "rows for columns", (".tril()", ".triu()")),
    (
        6,
        "the norm first",
        (
            ENCODER,
            "    normed = norm_1(x)\n"
            "    x = x + attention(normed, normed, mask)\n"
            "    return x + network(norm_2(x))",
        ),
    ),
    (
        6,
        "no residual connection",
        (NORMED, "norm_1(attention(x, x, mask))"),
        ("norm_2(x + network(x))", "norm_2(network(x))"),
    ),
    (6, "one norm twice", ("norm_2(x + network", "norm_1(x + network")),
    (
        7,
        "masks swapped",
        (
            "source_mask, target_mask = masks",
            "target_mask, source_mask = masks",
        ),
    ),
    (
        7,
        "no cross-attention",
        (f"    y = norms[1](y + {MEMORY})\n", ""),
    ),
    (
        7,
        "queries made from the memory",
        (MEMORY, "attend_memory(memory, y, source_mask)"),
    ),
    (8, "padding counted", ("loss[labels != 0].mean()", "loss.mean()")),
    (8, "a sum instead of a mean", ("!= 0].mean()", "!= 0].sum()")),
    (
        8,
        "the share not taken from the right token",
        ("-(1 - share) * right", "-right"),
    ),
    (9, "the larger of the two terms", ("* min(", "* max(")),
    (
        9,
        "steps from 0",
        ("    ramp = step", "    step = step - 1\n    ramp = step"),
    ),
    (
        9,
        "a ramp that does not meet the root",
        ("warmup_steps**-1.5", "warmup_steps**-1"),
    ),
    (
        10,
        "a mean of means",
        ("/ tokens\n", "/ batch.tokens / len(group)\n"),
    ),
    (
        10,
        "gradients that stay",
        ("    optimizer.zero_grad()\n", ""),
    ),
    (
        10,
        "labels shown to the decoder",
        (
            "batch.source_ids, batch.target_ids",
            "batch.source_ids, batch.labels",
        ),
    ),
    (
        10,
        "every epoch in the same order",
        ("batches.epoch(epoch)", "batches.epoch(0)"),
    ),
    (11, "the first position's logits", ("hidden[0, -1]", "hidden[0, 0]")),
    (11, "eos dropped", ("return ids[1:]", "return ids[1:-1]")),
    (11, "no limit", ("len(ids) <= limit and ", "")),
    (12, "no length penalty", ("alpha=0.6", "alpha=0")),
    (
        12,
        "an eos outside the beam ends a sentence",
        ("elif rank < beam_size:", "else:"),
    ),
    (
        12,
        "the first finished sentence stops the search",
        ("len(ended) >= beam_size", "len(ended) >= 1"),
    ),
]


@cache
def cells() -> list[str]:
    """The page's cells of code: functions, loop, model, training, ..."""
    notebook = jupytext.read(PAGE)
    code = [x.source for x in notebook.cells if x.cell_type == "code"]
    first = [i for i, cell in enumerate(code) if "class Tied" in cell][0]
    return code[first:]


def planted(code: str, changes: tuple) -> str:
    """The first cells' code with a mistake in it."""
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new, 1)
    return code


def whole(changes: tuple = ()) -> str:
    """The functions and the loop that trains, with a mistake in them."""
    functions, loop, *_ = cells()
    return planted(f"{functions}\n\n\n{loop}", changes)


def trained(
    changes: tuple = (), watch: Any = None, seed: int = 0
) -> dict[str, Any]:
    """The names of the page after a training with a mistake."""
    _, _, *model, training, translate, _ = cells()
    names: dict[str, Any] = {}
    exec("\n".join([whole(changes), *model]), names)
    if watch:
        watch(names)
    exec(training.replace("seed(0)", f"seed({seed})"), names)
    exec(translate, names)
    return names


def seen(names: dict[str, Any], beam_size: int) -> dict[str, Any]:
    """What a teacher sees of it."""
    count = 100 if beam_size == 1 else 50
    test = names["load_corpus"]("little_spanish", "en", "es", "test")[:count]
    translate = names["translate"]
    losses = names["losses"]
    return {
        "first": losses[0],
        "last": sum(losses[-20:]) / 20,
        "right": sum(translate(en, beam_size) == es for en, es in test),
        "of": count,
        "trees": translate("I like trees", beam_size),
    }


def rewritten(base: dict[str, Any], changes: tuple) -> dict[str, Any]:
    """The names of a trained page, with a mistake in decoding."""
    names = dict(base)
    functions, _, *_, translate, _ = cells()
    exec(planted(functions, changes), names)
    exec(translate, names)
    return names


def result(change: tuple, base: dict[str, Any]) -> dict[str, Any]:
    sitting, mistake, *changes = change
    try:
        if sitting > 10:
            names = rewritten(base, tuple(changes))
        else:
            names = trained(tuple(changes)) if changes else base
        said = seen(names, 4 if sitting == 12 else 1)
    except (RuntimeError, ZeroDivisionError, TypeError) as error:
        said = {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
    said = {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in said.items()
    }
    return {"sitting": sitting, "mistake": mistake} | said


# What "Which line is broken?" shows

LEVELS = [  # a mistake, and the functions that it is looked for in
    # no level shows the line that a later one has changed, but for the fifth
    ("an open future", "masks table my_encoder_layer"),
    ("gradients that stay", "update loop"),
    ("the first position's logits", "masks update greedy"),
    ("no cross-attention", "masks my_encoder_layer my_decoder_layer"),
    ("labels shown to the decoder", "masks update loop greedy"),
    ("no factor √d_model", "Tied table my_encoder_layer my_decoder_layer"),
    (
        "0 for a forbidden score",
        "my_attention masks my_encoder_layer my_decoder_layer",
    ),
    (
        "heads joined without moving their axis back",
        "my_attention my_multi_head masks my_decoder_layer",
    ),
    ("padding counted", "masks smoothed update loop greedy"),
    ("a ramp that lags by one", "smoothed rate update loop greedy"),
]
LAG = 9, "a ramp that lags by one", ("ramp = step", "ramp = (step - 1)")
READ, SAID = "I like trees", "Me gustan los árboles"
STEPS = 1, 2, 3, 200, 600


def watch(names: dict[str, Any]) -> None:
    """Note rates, gradients and the loss of unseen sentences."""
    log = names["log"] = {"rate": [], "gradient": [], "held_out": []}
    own = names["update"]

    def update(model, optimizer, group):
        log["rate"].append(optimizer.param_groups[0]["lr"])
        own(model, optimizer, group)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        square = sum(grad.square().sum().item() for grad in grads)
        log["gradient"].append(square**0.5)
        if len(log["rate"]) % 50 == 0:
            with names["torch"].no_grad():
                log["held_out"].append(held_out(names, model))

    names["update"] = update


def held_out(names: dict[str, Any], model: Any) -> float:
    """Nats per token of test sentences, as they are rightly fed."""
    test = names["load_corpus"]("little_spanish", "en", "es", "test")[:200]
    encoded = names["encode_pairs"](test, names["tokenizer"])
    total = tokens = 0
    for batch in names["TokenBatches"](encoded, 512).epoch(0):
        logits = model(batch.source_ids, batch.target_ids)
        loss = names["smoothed"](logits, batch.labels, 0.1)
        total += loss.item() * batch.tokens
        tokens += batch.tokens
    return total / tokens


def looked_at(names: dict[str, Any]) -> dict[str, Any]:
    """Attention, probes and sizes, for one pair of sentences."""
    torch, model = names["torch"], names["model"]
    tokenizer = names["tokenizer"]

    def read(text):
        return torch.tensor([[*tokenizer.encode(text), names["EOS"]]])

    def begun(ids):
        return torch.tensor([[names["BOS"], *ids[0, :-1].tolist()]])

    source, labels = read(READ), read(SAID)
    target = begun(labels)
    maps = []
    own = names["scaled_dot_product_attention"]

    def noted(*given):
        heads, weights = own(*given)
        maps.append(weights.mean(dim=(0, 1)).tolist())
        return heads, weights

    names["scaled_dot_product_attention"] = noted
    logits = model(source, target)
    names["scaled_dot_product_attention"] = own
    crossed = len(maps) == 3 * model.config.N

    def moved(*changed):
        others = model(*changed)[:, : target.size(1)]
        return (others - logits).abs().amax(-1)[0].tolist()

    def padded(ids):
        return torch.nn.functional.pad(ids, (0, 3), value=names["PAD"])

    def loss(*change):
        source_, target_, labels_ = [f(x) for f, x in change]
        logits = model(source_, target_)
        return names["smoothed"](logits, labels_, 0.1).item()

    same = [(lambda x: x, x) for x in (source, target, labels)]
    wide = [(padded, x) for x in (source, target, labels)]
    words = model.tied.embed(source).norm(dim=-1).mean().item()
    places = names["table"](6, model.config.d_model).norm(dim=-1).mean()
    return {
        "read": [*READ.split(), "end"],
        "said": [*SAID.split(), "end"],
        "self": maps[model.config.N],
        "cross": maps[model.config.N + 1] if crossed else None,
        "source": moved(read(READ.replace("trees", "books")), target),
        "target": moved(
            source, begun(read(SAID.replace("árboles", "camiones")))
        ),
        "padding": moved(padded(source), target),
        "losses": [loss(*same), loss(*wide)],
        "words": words,
        "places": places.item(),
    }


def level(change: tuple, base: dict[str, Any]) -> dict[str, Any]:
    """All that a player may look at."""
    sitting, mistake, *changes = change
    if sitting > 10:
        names = rewritten(base, tuple(changes))
    else:
        names = trained(tuple(changes), watch) if changes else base
    log, losses = names["log"], names["losses"]
    ten = [sum(losses[i : i + 10]) / 10 for i in range(0, 600, 10)]
    test = names["load_corpus"]("little_spanish", "en", "es", "test")[:5]
    told = [(en, es, names["translate"](en)) for en, es in test]
    sizes = [
        [log[what][step - 1] for step in STEPS]
        for what in ("rate", "gradient")
    ]
    with names["torch"].no_grad():
        # a mistake in decoding leaves the model as it is
        inside = base if sitting > 10 else names
        found = seen(names, 1) | looked_at(inside)
    found |= {"curve": ten, "held_out": log["held_out"]}
    found |= {"told": told, "sizes": sizes}
    return {"mistake": mistake} | rounded(found)


def rounded(value: Any) -> Any:
    """Three digits of every number; None for what is none."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.3g}") if math.isfinite(value) else None
    return value


def report(out: Path, name: str, rows: list[dict[str, Any]]) -> None:
    command = shlex.join(["python", *sys.argv])
    made = {"command": command, "rows": rows}
    indent = 1 if name == "mistakes" else None
    text = json.dumps(made, ensure_ascii=False, indent=indent) + "\n"
    write_atomically(out / f"{name}.json", text)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--levels", action="store_true")
    given = made.parse_args()
    base = trained((), watch)
    rows, changes = [], MISTAKES
    if given.levels:
        known = {change[1]: change for change in (*MISTAKES, LAG)}
        changes = [known[name] for name in dict(LEVELS)]
        none = MISTAKES[0]
        again = 0, "none, with another seed"
        rows = [level(none, base), level(again, trained((), watch, seed=1))]
    for change in changes:
        rows.append((level if given.levels else result)(change, base))
        print(rows[-1], flush=True)
    report(given.out, "broken" if given.levels else "mistakes", rows)


if __name__ == "__main__":
    main()
