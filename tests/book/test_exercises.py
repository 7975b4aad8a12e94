"""The exercises: stubs, their checks, the course that they make."""

import math
import re

import jupytext
import pytest
import tangle
import torch
from test_chapters import CHAPTERS

import transformer_lib as lib
from transformer_book.exercises import check

TEXT = {page: path.read_text("utf-8") for page, path in CHAPTERS.items()}
TITLE = re.compile(r"^`{3,4}\{exercise\} ?(.*)\n(?::label: (\S+))?", re.M)
STUBS = {
    "embeddings.tied": "embeddings-ex-1",
    "positions.sinusoids": "positions-ex-1",
    "attention.attention": "attention-ex-1",
    "attention.multi_head": "attention-ex-2",
    "masks.masks": "masks-ex-1",
    "layers.encoder_layer": "layers-ex-1",
    "layers.decoder_layer": "layers-ex-2",
    "loss.smoothed": "loss-ex-1",
    "schedule.learning_rate": "schedule-ex-1",
    "training.update": "training-ex-1",
    "decoding.greedy": "decoding-ex-1",
    "beams.search": "beams-ex-1",
}


def cells_of(name):
    """The page's two cells of a stub: itself, and its solution."""
    label = STUBS[name]
    page = next(p for p in TEXT if p.endswith(f"/{name.split('.')[0]}"))
    found = re.search(
        rf":label: {label}\n.*?^```{{solution-end}}", TEXT[page], re.M | re.S
    )
    assert found, f"{page} has no exercise {label}"
    cells = [cell[3] for cell in tangle.CELL.finditer(found[0])]
    assert len(cells) == 2
    last = f'check("{name}", '
    assert all(last in cell.splitlines()[-1] for cell in cells)
    return cells


def answer_in(cell):
    """What a cell defines, without the check that ends it."""
    code, call = cell.strip().rsplit("\n", 1)
    scope = {name: getattr(lib, name) for name in lib.__all__}
    scope |= {"torch": torch, "nn": torch.nn, "math": math}
    scope["attention"] = lib.attention.attention
    exec(code, scope)
    return scope[re.search(r", (\w+)\)", call)[1]]


def solution(name, *change):
    """The page's answer; or with a piece of it changed, a mistake."""
    code = cells_of(name)[1]
    for old, new in zip(change[::2], change[1::2], strict=True):
        assert old in code, f"{old!r} is not in the solution of {name}"
        code = code.replace(old, new)
    return answer_in(code)


# What goes wrong: pieces of the page's solution, what stands there
# instead, and what the check says of it.
MISTAKES = {
    "embeddings.tied": [
        (" / d_model**0.5", "", "they need d_model^-0.5"),
        (" * self.weight.size(1) ** 0.5", "", "factor is missing"),
        ("(1) ** 0.5", "(1)", "sqrt(d_model), not d_model"),
        ("hidden @", "8 * hidden @", "embedding layers alone"),
        (
            "hidden @ self.weight.T",
            "(hidden @ self.weight.T).log_softmax(-1)",
            "before the softmax",
        ),
        (
            "nn.Parameter(table)",
            "nn.Parameter(table)\n"
            "        self.output = nn.Parameter(table.clone())",
            "one matrix does both jobs",
        ),
        ("nn.Parameter(table)", "table", "nothing would learn"),
    ],
    "positions.sinusoids": [
        ("arange(length)", "arange(1, length + 1)", "count from 0"),
        ("(2 * i /", "(i /", "yours is i / d_model"),
        ("/ d_model)\n", "/ (d_model - 2))\n", "run to 1"),
        (
            "    encodings = torch.zeros(length, d_model)\n",
            "    return torch.cat([angle.sin(), angle.cos()], 1)\n",
            "beside its sine",
        ),
        (
            "angle.sin()",
            "b",
            "angle.cos()",
            "angle.sin()",
            "= b",
            "= angle.cos()",
            "dimensions are sines",
        ),
        (
            "angle.cos()",
            "(pos / 10_000 ** ((2 * i + 1) / d_model)).cos()",
            "share the angle",
        ),
    ],
    "attention.attention": [
        (" / math.sqrt(query.size(-1))", "", "not divided by the root"),
        ("math.sqrt(query.size(-1))", "query.size(-1)", "take its root"),
        ("query.size(-1)", "key.size(-2)", "the number of keys"),
        ("dim=-1", "dim=-2", "over the queries"),
        ("~mask", "mask", "True in the mask"),
        ("scores.masked_fill(~mask, float", "scores #", "not used"),
        ('~mask, float("-inf")', "~mask, 0.0", "e^0 is 1"),
    ],
    "attention.multi_head": [
        (
            "x.unflatten(-1, (h, -1)).transpose(1, 2)",
            "x.reshape(len(x), h, -1, x.size(-1) // h)",
            "cut along the words",
        ),
        (
            "heads.transpose(1, 2).flatten(2)",
            "heads.reshape(x.shape)",
            "move their axis back",
        ),
        ("(h, -1)", "(1, -1)", "a single head"),
        ("memory @", "x @", "come from memory"),
        (" @ w_o", "", "with w_o, is missing"),
        (", mask)\n", ")\n", "with a mask nothing changes"),
        ("attention(query", "attention(query / h**0.5", "of one head"),
    ],
    "masks.masks": [
        ("triangle & ", "(triangle | True) & ", "leaves the future open"),
        (
            "triangle & (target_ids != 0)[:, None, None, :]",
            "triangle.expand(len(target_ids), 1, -1, -1)",
            "leaves padding open",
        ),
        ("tril()", "tril(-1)", "may look at itself"),
        (".tril()", ".triu()", "changed places"),
        ("source_ids != 0", "source_ids == 0", "says the opposite"),
        ("return padding,", "return padding.float(),", "a mask is boolean"),
        (
            "source_ids != 0)[:, None, None, :]",
            "source_ids != 0)",
            "is (2, 5)",
        ),
    ],
    "layers.encoder_layer": [
        (
            "norm_1(x + attention(x, x, mask))",
            "x + attention(norm_1(x), norm_1(x), mask)",
            "norm_2(x + network(x))",
            "x + network(norm_2(x))",
            "this is pre-norm",
        ),
        (
            "norm_1(x + attention(x, x, mask))",
            "x + norm_1(attention(x, x, mask))",
            "norm_2(x + network(x))",
            "x + norm_2(network(x))",
            "the paper adds first",
        ),
        ("x + ", "", "residual connection is missing"),
        (
            "    x = norm",
            "    old = x\n    x = norm",
            "x + network",
            "old + network",
            "the output of the sub-layer before it",
        ),
        ("x, x, mask", "x, x, None", "mask is not used"),
        ("norm_2(x", "norm_1(x", "norm_1 is used twice"),
    ],
    "layers.decoder_layer": [
        ("y, y, target_mask", "y, y, None", "a mask is not used"),
        (
            "source_mask, target_mask = masks",
            "target_mask, source_mask = masks",
            "masks are swapped",
        ),
        (
            "attend_self, attend_memory =",
            "attend_memory, attend_self =",
            "attentions are swapped",
        ),
        ("y, memory, source_mask", "y, y, source_mask", "never attended to"),
        (
            "y, memory, source_mask",
            "memory, y, source_mask",
            "queries come from y",
        ),
        ("y + ", "", "residual connection is missing"),
        (
            "norms[0](y + attend_self(y, y, target_mask))",
            "y + norms[0](attend_self(y, y, target_mask))",
            "norms[1](y + attend_memory(y, memory, source_mask))",
            "y + norms[1](attend_memory(y, memory, source_mask))",
            "norms[2](y + network(y))",
            "y + norms[2](network(y))",
            "the paper adds first",
        ),
        (
            "norms[0](y + attend_self(y, y, target_mask))",
            "y + attend_self(norms[0](y), norms[0](y), target_mask)",
            "norms[1](y + attend_memory(y, memory, source_mask))",
            "y + attend_memory(norms[1](y), memory, source_mask)",
            "norms[2](y + network(y))",
            "y + network(norms[2](y))",
            "this is pre-norm",
        ),
    ],
    "loss.smoothed": [
        ("loss[labels != 0]", "loss", "padding is counted"),
        ("0].mean()", "0].sum()", "this is the sum"),
        (
            "loss[labels != 0].mean()",
            "-loss[labels != 0].mean()",
            "the sign is wrong",
        ),
        ("log_p.mean(-1)", "log_p.sum(-1)", "sum over the tokens"),
        ("(1 - share) * right", "right", "keeps all of its 1"),
        (
            " - share * log_p.mean(-1)",
            "",
            "(1 - share) * ",
            "",
            "nothing is smoothed",
        ),
        ("0].mean()", "0]", "the loss is one number"),
        (
            "log_p.mean(-1)",
            "(log_p.sum(-1) - right) / (log_p.size(-1) - 1)",
            "only to the wrong tokens",
        ),
        (
            "loss[labels != 0].mean()",
            "sum(a[b != 0].mean() / len(labels)"
            " for a, b in zip(loss, labels))",
            "every sentence weighs the same",
        ),
    ],
    "schedule.learning_rate": [
        ("min(", "max(", "takes the lower"),
        ("min(step**-0.5, ramp)", "step**-0.5", "there is no ramp"),
        ("min(step**-0.5, ramp)", "ramp", "rises for ever"),
        ("d_model**-0.5 * ", "", "factor d_model^-0.5 is missing"),
        ("d_model**-0.5", "d_model**0.5", "falls with the width"),
        ("    ramp", "    step += 1\n    ramp", "count from 1"),
        (
            "step * warmup_steps**-1.5",
            "step / warmup_steps",
            "so that it meets",
        ),
        ("warmup_steps**-1.5", "400**-1.5", "warmup_steps=400 alone"),
    ],
    "training.update": [
        ("    optimizer.step()\n", "", "nothing moved"),
        ("    optimizer.zero_grad()\n", "", "old gradients are still there"),
        (
            "        logits",
            "        optimizer.zero_grad()\n        logits",
            "only the last batch counts",
        ),
        ("in group:", "in group[:1]:", "only the first batch counts"),
        (
            "loss.backward()\n    optimizer",
            "loss.backward()\n        optimizer",
            "a step for each batch",
        ),
        (" / tokens", "", "divide it by the tokens"),
        (" / tokens", " / batch.tokens / len(group)", "a mean of means"),
    ],
    "decoding.greedy": [
        ("ids[1:]", "ids", "bos is an input"),
        ("ids[1:]", "ids[1 : -1 if ids[-1] == EOS else None]", "eos belongs"),
        ("hidden[0, -1]", "hidden[0, 0]", "not at the first"),
        (" and ids[-1] != EOS", "", "the output went on"),
        (
            "        logits[[PAD, BOS]] = -torch.inf\n",
            "",
            "pad or bos came out",
        ),
        ("ids.size(1) - 1", "ids.size(1)", "yours has 11"),
    ],
    "beams.search": [
        (
            "    beam, ended",
            "    beam_size = 1\n    beam, ended",
            "one hypothesis a step",
        ),
        ("** alpha", "** 0", "by the length penalty"),
        ("(5 + len(one[0]))", "(4 + len(one[0]))", "counts eos as well"),
        ("elif rank < beam_size:", "else:", "among the best `beam_size`"),
        ("len(ended) >= beam_size", "ended", "have ended"),
        (
            "return max(ended or beam, key=score)[0]",
            "return [BOS, *max(ended or beam, key=score)[0]]",
            "not a part of the output",
        ),
    ],
}
CASES = [(name, *row) for name in MISTAKES for row in MISTAKES[name]]


@pytest.mark.parametrize("name", STUBS)
def test_the_pages_solution_is_right(name):
    assert check(name, solution(name))


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_is_not_right_and_does_not_fail(name, capsys):
    assert not check(name, answer_in(cells_of(name)[0]))
    said = capsys.readouterr().out
    assert "raised" not in said and "could not use" not in said


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}: {c[-1]}")
def test_a_mistake_is_named(case, capsys):
    name, *change, words = case
    assert not check(name, solution(name, *change))
    said = capsys.readouterr().out
    assert words.lower() in said.lower()
    for other in MISTAKES[name]:
        assert other[-1] == words or other[-1] not in said


# The same by other ways: einsum, additive masks, a head at a time.
OTHER = {
    "embeddings.tied": """
class Answer(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        self.root = math.sqrt(d_model)

    def embed(self, ids):
        return self.root * self.table(ids)

    def project(self, hidden):
        return nn.functional.linear(hidden, self.table.weight)
""",
    "positions.sinusoids": """
def Answer(length, d_model):
    powers = torch.arange(0, d_model, 2) * -math.log(10_000) / d_model
    angle = torch.outer(torch.arange(length).float(), powers.exp())
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
""",
    "attention.attention": """
def Answer(query, key, value, mask=None):
    scores = torch.einsum("...qd,...kd->...qk", query, key)
    scores = scores * key.size(-1) ** -0.5
    if mask is not None:
        scores = scores + (~mask) * -1e9
    weights = nn.functional.softmax(scores.double(), -1).float()
    return torch.einsum("...qk,...kd->...qd", weights, value), weights
""",
    "attention.multi_head": """
def Answer(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    mask = None if mask is None else mask[:, 0]
    threes = zip(
        (x @ w_q).chunk(h, -1),
        (memory @ w_k).chunk(h, -1),
        (memory @ w_v).chunk(h, -1),
    )
    heads = [attention(*three, mask)[0] for three in threes]
    rows = w_o.chunk(h)
    return sum(a @ b for a, b in zip(heads, rows))
""",
    "loss.smoothed": """
def Answer(logits, labels, share):
    classes = logits.size(-1)
    target = torch.full(logits.shape, share / classes)
    target.scatter_add_(
        -1, labels[..., None], torch.full((*labels.shape, 1), 1 - share)
    )
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    loss = -torch.einsum("blv,blv,bl", target, log_p, labels.ne(0).float())
    return loss / labels.count_nonzero()
""",
    "schedule.learning_rate": """
def Answer(step, d_model, warmup_steps):
    step = torch.tensor(float(step))
    if step < warmup_steps:
        return (step / warmup_steps) / math.sqrt(d_model * warmup_steps)
    return 1 / (d_model * step).sqrt()
""",
    "training.update": """
def Answer(model, optimizer, group):
    losses = [
        nn.functional.cross_entropy(
            model(batch.source_ids, batch.target_ids).mT,
            batch.labels,
            ignore_index=0,
            label_smoothing=0.1,
            reduction="sum",
        )
        for batch in group
    ]
    (sum(losses) / sum((b.labels != 0).sum() for b in group)).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "decoding.greedy": """
def Answer(model, source_ids, max_extra=50):
    ids = torch.tensor([[BOS]])
    for _ in range(source_ids.size(1) - 1 + max_extra):
        logits = model(source_ids, ids)[:, -1].detach()
        logits[:, PAD] = logits[:, BOS] = float("-inf")
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        if ids[0, -1] == EOS:
            break
    return ids[0, 1:]
""",
    "beams.search": """
def Answer(next_logs, beam_size=4, alpha=0.6, limit=20):
    still, ended = {(): 0.0}, {}
    for _ in range(limit):
        found = [
            (total + log, (*ids, token))
            for ids, total in still.items()
            for token, log in enumerate(next_logs([*ids]).tolist())
        ]
        found.sort(reverse=True)
        for total, ids in found[:beam_size]:
            if ids[-1] == EOS:
                ended[ids] = total
        still = [(i, t) for t, i in found if i[-1] != EOS]
        still = dict(still[:beam_size])
        if len(ended) >= beam_size:
            break
    final = ended or still
    penalty = lambda ids: ((5 + len(ids)) / 6) ** alpha
    return max(final, key=lambda ids: final[ids] / penalty(ids))
""",
}


@pytest.mark.parametrize("name", OTHER)
def test_another_way_is_right_too(name, capsys):
    answer = answer_in(f'{OTHER[name]}\nassert check("{name}", Answer)')
    assert check(name, answer), capsys.readouterr().out


def exercises_of(text):
    """Label, name and minutes of each exercise of a page."""
    for said, label in TITLE.findall(text):
        found = re.fullmatch(r"(.+) \((\d+) minutes, ★{1,3}\)", said)
        assert found, f"{said!r}: how long, and how hard?"
        yield label, found[1], int(found[2])


def test_a_stub_is_the_first_exercise_of_its_chapter():
    for page, text in TEXT.items():
        labels = [label for label, _, _ in exercises_of(text)]
        stubs = [label for label in labels if label in STUBS.values()]
        assert labels[: len(stubs)] == stubs, page


# The course

COURSE = tangle.ROOT / "book" / "appendix" / "course.md"
PIECES, *REST = [
    cell.source
    for cell in jupytext.read(COURSE).cells
    if cell.cell_type == "code"
]


def test_the_course_sets_the_twelve_and_adds_up():
    text = TEXT["book/appendix/course"]
    row = r"\{ref\}`([^`<]+) <(\w+-ex-\d)>`, (\d+) minutes"
    rows = {label: (name, int(n)) for name, label, n in re.findall(row, text)}
    assert [*rows] == [*STUBS.values(), "course-ex-1"]
    told = [each for text in TEXT.values() for each in exercises_of(text)]
    assert rows.items() <= {(label, (a, b)) for label, a, b in told}
    times = [minutes for _, minutes in rows.values()]
    total = re.search(r"take (\d+) minutes, .* (\d+)\.", text)
    assert [*map(int, total.groups())] == [sum(times[:-1]), sum(times)]


def test_the_courses_pieces_are_the_pages_solutions():
    for name in STUBS:
        code = cells_of(name)[1].rpartition("\n\n\nassert check")[0]
        assert f"\n\n{code.strip()}\n" in f"{PIECES}\n", name


def test_the_course_uses_every_piece():
    """A piece that is somebody's own is the one that is called."""
    scope, called = {}, set()
    exec(PIECES, scope)
    names = re.findall(r"^(?:def|class) (\w+)", PIECES, re.M)
    assert len(names) == len(STUBS)

    def noted(name, piece):
        return lambda *args, **named: called.add(name) or piece(*args, **named)

    for name in names:
        scope[name] = noted(name, scope[name])
    for cell in REST[:-1]:
        exec(cell.replace("steps=600", "steps=1"), scope)
    assert called == set(names)
