"""The conformance suite: what is right is not accused, what is wrong is
named. `experiments/conformance/faults.yml` is the table of faults."""

import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import transformer_conformance as conformance
from transformer_book.plant import ours as library
from transformer_book.plant import planted
from transformer_conformance import Adapter, run
from transformer_conformance import ours as ours_module
from transformer_conformance.__main__ import main
from transformer_conformance.clinic import probe
from transformer_conformance.core import FUNCTIONS, Result, close, fault
from transformer_conformance.decoding import LOOSE, reference
from transformer_conformance.model import OURS_FIRST
from transformer_conformance.places import CONSEQUENCES, LOCAL, page
from transformer_conformance.plain import judge, other_tables
from transformer_conformance.report import EXAMPLES, summary
from transformer_lib import BOS, EOS, PAD, Transformer, TransformerConfig

PACKAGE = Path(conformance.__path__[0])
TESTS = Path(__file__).parent
EXPERIMENTS = TESTS.parent / "experiments/conformance"
FAULTS = yaml.safe_load((EXPERIMENTS / "faults.yml").read_text("utf-8"))
assert len(FAULTS) > 100, "the page says so"


def probes_of(*names):
    """The probes of these names, in their order."""
    return [one for one in conformance.PROBES if one.name in names]


def verdicts(functions, *names):
    """What probes of these names, or of these functions, say."""
    asked = [
        one
        for one in conformance.PROBES
        if one.name in names or {*one.needs} & {*names}
    ]
    return list(run(Adapter(functions), asked))


def verdict(functions, name):
    """What one probe says."""
    [result] = run(Adapter(functions), probes_of(name))
    return result.verdict


def built(change=None, **options):
    """`build` of the library, with options, and `logits`; `change` is done
    to each model."""

    def build(*sizes):
        names = "vocab_size N d_model d_ff h dropout".split()
        config = dict(zip(names, sizes, strict=True))
        model = Transformer(TransformerConfig(**config, **options))
        if change:
            change(model)
        return model

    return {"build": build, "logits": ours_module.logits}


def written(folder, text):
    """An adapter's file."""
    file = folder / "mine.py"
    file.write_text(text, "utf-8")
    return file


# What is right


def test_the_library_is_the_paper():
    """And every source ends in eos, as the template promises: then padding,
    and nothing else."""
    sources = []

    def logits(model, source_ids, target_ids):
        sources.extend(source_ids.tolist())
        return ours_module.logits(model, source_ids, target_ids)

    found = list(run(Adapter(vars(ours_module) | {"logits": logits})))
    kinds = {"paper", "not tried"}
    wrong = [r for r in found if r.verdict.kind not in kinds]
    assert not wrong, conformance.as_text(wrong)
    untried = {
        n for r in found for n in r.probe.needs if r.verdict.kind != "paper"
    }
    parts = {"embeddings", "encoder_layer", "decoder_layer", "optimizer"}
    assert untried <= parts
    assert len(sources) > 1000
    for row in sources:
        words = [i for i in row if i != 0]
        assert not words or words[-1] == EOS
        assert words == row[: len(words)] and EOS not in words[:-1]


@pytest.mark.parametrize(
    "file, deviations",
    [
        (TESTS / "another_transformer.py", {LOOSE}),
        (
            PACKAGE / "examples/nn.py",
            {
                "a last norm after post-norm",
                "biases in attention",
                "dropout on attention weights and inner layer",
                LOOSE,
            },
        ),
        (
            PACKAGE / "examples/gpt.py",
            {
                "pre-norm",
                "biases in attention",
                "learned positions",
                "another activation than ReLU",
                "embeddings without the factor",
            },
        ),
        (
            EXPERIMENTS / "after_gpt.py",
            {
                "pre-norm",
                "dropout at a fixed rate",
                "no dropout on the sums of embeddings and positions",
            },
        ),
    ],
)
def test_the_innocent_are_not_accused(file, deviations):
    """Correct programs of other make; the first two may write padding
    and bos, and the first leaves them out of its outputs."""
    results = list(run(Adapter.load(file, seed=1)))
    wrong = [r for r in results if r.verdict.kind == "fault"]
    assert not wrong, conformance.as_text(wrong)
    kinds = [r.verdict.kind for r in results]
    assert kinds.count("paper") > 20
    named = {r.verdict.name for r in results if r.verdict.name}
    assert named == deviations


def test_the_first_loss_of_ours_is_what_the_probe_says():
    words = verdict(vars(ours_module), "first_loss").words
    assert float(words.split()[0]) == pytest.approx(OURS_FIRST, abs=0.5)


OPTIONS = {
    "pre-norm": dict(norm="pre"),
    "untied: three tables": dict(tie="none"),
    "untied: two tables": dict(tie="decoder"),
    "learned positions": dict(positions="learned"),
    "dropout on attention weights": dict(attention_dropout=0.3),
    "heads of a width of their own": dict(d_k=4, d_v=4),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_a_named_deviation(name):
    """And no option of the library is a fault, unless its size is."""
    given = built(**OPTIONS[name]) | {"encode": ours_module.encode}
    slow = {"by_heart", "greedy", "greedy_in_evaluation"}
    wanted = [
        one
        for one in conformance.PROBES
        if "build" in one.needs and one.name not in slow
    ]
    found = list(run(Adapter(given), wanted))
    assert name in [r.verdict.name for r in found]
    wrong = {r.probe.name for r in found if r.verdict.kind == "fault"}
    narrow = {"layer_weights"} if "width" in name else set()
    assert wrong <= narrow


SOFTMAX = "weights = scores.softmax(dim=-1)"
QUERY = "query = self.place(self.split(self.w_q(x)), offset)"
KEYS = "key, value = self.w_k(memory), self.w_v(memory)"
THREE = "torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight])"
INSIDE = "norm_formula residuals order_of_sublayers scores_factor activation "
INSIDE += "embedding_factor added_positions dropout_places dropout_of_sums "
INSIDE += "hidden_weights training_equals_evaluation"
FORMS = {  # right ones: lines of the attention that is written out
    "heads before sentences": {
        SOFTMAX: "weights = scores.mT.transpose(0, 1).softmax(-2)\n"
        "    weights = weights.transpose(0, 1).mT"
    },
    "heads as sentences": {
        SOFTMAX: "weights = scores.flatten(0, 1).softmax(-1)\n"
        "    weights = weights.unflatten(0, scores.shape[:2])"
    },
    "heads as sentences, in front": {
        SOFTMAX: "weights = scores.transpose(0, 1)\n"
        "    weights = weights.flatten(0, 1).softmax(-1)\n"
        "    weights = weights.unflatten(0, (-1, len(scores)))\n"
        "    weights = weights.transpose(0, 1)"
    },
    "heads between queries and keys": {
        SOFTMAX: "weights = scores.transpose(1, 2).softmax(-1)\n"
        "    weights = weights.transpose(1, 2)"
    },
    "a softmax for each head": {
        SOFTMAX: "weights = [x.softmax(-1) for x in scores.unbind(1)]\n"
        "    weights = torch.stack(weights, 1)"
    },
    "one matrix of queries, keys and values": {
        QUERY: f"query = F.linear(x, {THREE}).chunk(3, -1)[0]\n"
        "        query = self.split(query)",
        KEYS: f"key, value = F.linear(memory, {THREE}).chunk(3, -1)[1:]",
    },
}

OTHERWISE = {  # the same model, written in other calls of PyTorch
    "positions looked up": [
        (
            "model",
            "x = self.positions(x, offset)",
            "places = torch.arange(ids.size(1)).expand_as(ids)\n"
            "            x = x + nn.functional.embedding("
            "places, self.positions.table)",
        )
    ],
    "positions in a weight that stays": [
        (
            "positions",
            'self.register_buffer("table", table, persistent=False)',
            "self.table = nn.Parameter(table, False)",
        )
    ],
    "arguments by their names": [
        (
            "layers",
            "inner = self.w_1(x).relu()",
            "inner = nn.functional.linear(input=x, weight=self.w_1.weight, "
            "bias=self.w_1.bias).relu()",
        )
    ],
    "a row for each token": [
        (
            "layers",
            "inner = self.w_1(x).relu()",
            "inner = self.w_1(x.flatten(0, 1)).relu()",
        ),
        (
            "layers",
            "return self.w_2(self.dropout(inner))",
            "return self.w_2(self.dropout(inner)).view(x.shape)",
        ),
    ],
    "convolutions of one position": [
        (
            "layers",
            "inner = self.w_1(x).relu()",
            "inner = nn.functional.conv1d(x.mT, self.w_1.weight[:, :, None], "
            "self.w_1.bias).mT.relu()",
        )
    ],
}


SLOWER = ("attention", "slower = self.training and query.is_cpu", "slower = 1")
for form, lines in FORMS.items():
    changes = [("attention", *line) for line in lines.items()]
    OTHERWISE[form] = [SLOWER, *changes]


@pytest.mark.parametrize("form", OTHERWISE)
def test_a_model_is_seen_however_it_is_written(form):
    with planted(*OTHERWISE[form]):
        found = list(run(library(), probes_of(*INSIDE.split())))
    wrong = [r for r in found if r.verdict.kind != "paper"]
    assert len(found) == 11 and not wrong, conformance.as_text(wrong)


# The table of faults

ACCUSED = "fault", "deviation"


@pytest.mark.parametrize("entry", FAULTS, ids=lambda x: f"{x[3]}-{x[2][:40]}")
def test_a_planted_fault_is_named(entry):
    """By a probe of its row, as a fault or as what others do."""
    module, old, new, row, *words = entry
    probes = [one for one in conformance.PROBES if one.row == row]
    with planted((module, old, new)):
        found = (r.verdict for r in run(library(), probes))
        said = (v.words for v in found if v.kind in ACCUSED)
        assert any(all(x in one for x in words) for one in said), new


class OneMode(torch.nn.Module):
    """A right model, of which one mode computes what a wrong one does,
    with the same weights."""

    def __init__(self, change, training, *sizes):
        super().__init__()
        self.right, self.wrong_in = ours_module.build(*sizes), training
        self.wrong = [planted_build(change)(*sizes)]  # no part of it

    def forward(self, *ids):
        [wrong] = self.wrong
        if self.training is not self.wrong_in:
            return self.right(*ids)
        wrong.train(self.training)
        weights = dict(self.right.named_parameters())
        return torch.func.functional_call(
            wrong, weights, ids, tie_weights=False
        )


@functools.cache
def planted_build(change):
    """The changed library's."""
    with planted(change):
        return importlib.import_module(ours_module.__name__).build


PARTS = {"attention", "masks", "layers", "embeddings", "positions", "model"}
IN_A_PASS = [tuple(x[:3]) for x in FAULTS if x[0] in PARTS]


@pytest.mark.parametrize("training", [True, False])
def test_a_fault_of_one_mode_is_noticed(training):
    """Whatever a forward pass of one mode alone does wrong."""
    source, target = torch.tensor([[5, 6, 3, 0]]), torch.tensor([[2, 7, 8]])
    sizes = 23, 2, 16, 64, 2, 0.0
    tried, missed = 0, []
    for change in IN_A_PASS:
        build = partial(OneMode, change, training)
        torch.manual_seed(0)
        try:
            both = build(*sizes).train(training)
            plain = both.right(source, target)
            differs = not close(both(source, target), plain, 1e-3)
        except (RuntimeError, TypeError, IndexError):
            continue
        if not differs:  # in this mode it shows in the weights alone
            continue
        tried += 1
        given = built() | {"build": build}
        probes = "training_equals_evaluation", "future"
        if not any(verdict(given, x).kind in ACCUSED for x in probes):
            missed.append(change)
    assert tried > 30 and not missed


ACROSS = "across(x, source, source_mask, offset)"
ALONG_THE_BATCH = (
    "positions",
    "return x + _rows(self.table, offset, x.size(1))",
    "return x + _rows(self.table, offset, x.size(0))[:, None]",
)


@pytest.mark.parametrize(
    "change, first",
    [
        (("masks", "every.tril()", "every.tril(-1)"), "causal_mask"),
        (("masks", "(ids != PAD)", "(ids == PAD)"), "padding_mask"),
        (
            (
                "attention",
                "return x.unflatten(-1, (self.h, -1)).transpose(1, 2)",
                "return x.reshape(x.size(0), self.h, x.size(1), -1)",
            ),
            "multi_head",
        ),
        (("layers", ACROSS, "across(x, source, None)"), "padding"),
        (ALONG_THE_BATCH, "batch"),
    ],
)
def test_one_cause_is_one_fault(change, first):
    """Of a whole model and its parts; what follows is said to follow."""
    slow = {"by_heart", "beams", "brute_force"}
    asked = [p for p in conformance.PROBES if p.name not in slow]
    with planted(change):
        found = list(run(library(), asked))
    faults = [r for r in found if r.verdict.kind == "fault"]
    assert [r.probe.name for r in faults if r.cause is None] == [first]
    assert len(faults) > 1


UNMASKED = (
    "model",
    "self.encoder(x, padding_mask(source_ids))",
    "self.encoder(x, None)",
)


@pytest.mark.parametrize(
    "change, name",
    [
        (
            (
                "layers",
                "own(x, so_far(x), target_mask, offset)",
                "own(x, so_far(x), None, offset)",
            ),
            "future",
        ),
        (ALONG_THE_BATCH, "batch"),
    ],
)
def test_two_causes_are_two_faults(change, name):
    """A mask that is missing explains no other, and no position."""
    with planted(UNMASKED, change):
        found = list(run(library(), probes_of(name, "padding")))
    assert [(r.verdict.kind, r.cause) for r in found] == [("fault", None)] * 2


LOWEST = "lowest = torch.finfo(scores.dtype).min"
MASKED_AFTER = (
    "weights = (query @ key.mT / d_k**0.5).softmax(-1)\n"
    "    weights = weights if mask is None else weights * mask"
)


@pytest.mark.parametrize(
    "change, words",
    [  # -1e-9 is a slip for -1e9
        (("attention", LOWEST, "lowest = -1e-9"), "its score is 0 in place"),
        (("masks", "every.tril()", "every.tril(-1)"), "Is the diagonal"),
        (
            ("attention", SOFTMAX, SOFTMAX.replace("-1", "-2")),
            "runs over the queries",
        ),
        (("attention", SOFTMAX, MASKED_AFTER), "applied after the softmax"),
    ],
)
def test_a_slip_is_named_where_only_a_model_is_given(change, words):
    with planted(change, ("attention", "if need_weights or slower:", "if 1:")):
        given = {x: getattr(library(), x) for x in ("build", "logits")}
        found = verdicts(given, "future", "order_of_sublayers")
    assert words in found[0].verdict.words
    assert found[1].verdict.kind == "paper"


def test_what_is_random_is_not_compared():
    """Dropout at evaluation is one fault, and not eight."""
    drop, always = "self.dropout(", "nn.functional.dropout("
    line = "return self.norm(x + self.dropout(sublayer(x)))"
    with planted(("layers", line, line.replace(drop, always))):
        names = "shape", "future", "batch"
        found = list(run(library(), probes_of(*names)))
    assert "dropout is still on" in found[0].verdict.words
    assert [r.verdict.kind for r in found[1:]] == ["not tried"] * 2


def pytorchs(folder, old, new=""):
    """The functions of PyTorch's own, with a change."""
    text = (PACKAGE / "examples/nn.py").read_text("utf-8")
    assert old in text
    return Adapter.load(written(folder, text.replace(old, new)))


def test_no_memory_mask_is_one_fault_of_pytorchs_own(tmp_path):
    """Its two modes give the padding's vectors differently."""
    mine = pytorchs(tmp_path, "memory_key_padding_mask=source_ids == PAD,")
    asked = [p for p in conformance.PROBES if "logits" in p.needs]
    asked = [p for p in asked if "greedy" not in p.name]
    functions = {"build": mine.build, "logits": mine.logits}
    found = list(run(Adapter(functions), asked))
    faults = [r for r in found if r.verdict.kind == "fault"]
    assert [r.probe.name for r in faults if not r.cause] == ["padding"]
    assert len(faults) > 1


@pytest.mark.parametrize(
    "old, new, words",
    [
        (
            "source_ids == PAD",
            "source_ids != PAD",
            "Is the padding mask turned round?",
        ),
        (", batch_first=True", "", "`batch_first=True` missing"),
        (
            "self.positions[: ids.size(1)]",
            "self.positions[: ids.size(0)]",
            "along the axis of the batch",
        ),
    ],
)
def test_pytorchs_errors_are_one_fault_with_a_cause(
    tmp_path, capsys, old, new, words
):
    """In the clinic too, by the same table."""
    adapter = pytorchs(tmp_path, old, new)
    asked = [p for p in conformance.PROBES if "logits" in p.needs]
    found = list(run(adapter, asked))
    faults = [r for r in found if r.verdict.kind == "fault"]
    assert [r.probe.name for r in faults] == ["shape"]
    assert words in faults[0].verdict.words
    assert {r.verdict.kind for r in found} == {"fault", "not tried"}
    assert "mend `shape` first" in conformance.as_text(found)
    model = adapter.build(100, 1, 32, 64, 4, 0.1)
    assert probe(model, vocab_size=100) == {"a first pass": False}
    assert words in capsys.readouterr().out


# Parts: what each slip is called


@pytest.mark.parametrize("words", other_tables(50, 16))
def test_each_slip_in_the_positions_has_its_own_words(words):
    verdict = judge(other_tables(50, 16)[words])
    assert verdict.kind == "fault" and verdict.words == words


def test_positions_of_tensor2tensor_are_named():
    def positions(length, d_model):
        steps = torch.arange(d_model // 2) / (d_model // 2 - 1)
        angle = torch.arange(length)[:, None] / 10_000**steps
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    found = verdict({"positions": positions}, "formula")
    assert found.name == "sines and cosines concatenated"


def test_what_padding_attends_to_is_of_no_account():
    """Many masks close the rows of padding, too."""

    def masks(source_ids, target_ids):
        source, target = ours_module.masks(source_ids, target_ids)
        return source & source.mT, target & (target_ids != 0)[:, None, :, None]

    kinds = [r.verdict.kind for r in verdicts({"masks": masks}, "masks")]
    assert kinds == ["paper", "paper"]


def test_a_mean_over_padding_is_one_deviation():
    def loss(logits, labels, smoothing):
        share = (labels != 0).sum() / labels.numel()
        return share * ours_module.loss(logits, labels, smoothing)

    names = ["smoothing", "no_smoothing", "padding_is_free"]
    found = {r.probe.name: r for r in verdicts({"loss": loss}, *names)}
    said = {found[name].verdict.name for name in names}
    assert said == {"a mean over padding too"}
    assert [bool(found[name].cause) for name in names] == [False, True, True]


@pytest.mark.parametrize(
    "others, name", [(10, "a divergence"), (8, "smoothing over V - 2")]
)
def test_a_divergence_is_no_fault(others, name):
    """As the Annotated Transformer and others compute their loss: lower
    than a cross-entropy by a constant, with the same gradients."""

    def loss(logits, labels, share):
        real = labels != PAD
        logs, labels = logits[real].log_softmax(-1), labels[real][:, None]
        part = share / 11 if others == 10 else share / 9
        goal = torch.full_like(logs, part)
        goal.scatter_(1, labels, 1 - share + (part if others == 10 else 0))
        if others == 8:
            goal[:, PAD] = 0
        total = torch.nn.functional.kl_div(logs, goal, reduction="sum")
        return total / len(labels)

    assert verdict({"loss": loss}, "smoothing").name == name


@pytest.mark.parametrize(
    "rate, schedule, kind",
    [
        (0.1, False, "fault"),
        (0.1, True, "not tried"),
        (1e-4, False, "not tried"),
        (1.0, False, "not tried"),
    ],
)
def test_the_optimizers_rate_is_looked_at(rate, schedule, kind):
    def optimizer(model):
        return torch.optim.Adam(model.parameters(), rate, (0.9, 0.98), 1e-9)

    given = {"optimizer": optimizer}
    if schedule:
        given["learning_rate"] = ours_module.learning_rate
    assert verdict(given, "rate").kind == kind


@pytest.mark.parametrize(
    "kind, name",
    [
        (torch.optim.AdamW, "weight decay"),
        (torch.optim.Adamax, "another optimizer"),
        (type("Adam", (torch.optim.SGD,), {}), "other betas"),
    ],
)
def test_another_optimizer_is_named(kind, name):
    """Whichever of its groups it is that decays."""

    def optimizer(model):
        weight, bias = model.parameters()
        first = {"params": [bias], "weight_decay": 0.0}
        return kind([first, {"params": [weight]}])

    assert verdict({"optimizer": optimizer}, "adam").name == name


def test_what_many_do_on_purpose_is_named():
    """Such as fairseq's warm-up: a line from a rate of its own."""

    def learning_rate(step, d_model, warmup_steps):
        if step < warmup_steps:
            return 1e-7 + step * (5e-4 - 1e-7) / warmup_steps
        return 5e-4 * (warmup_steps / step) ** 0.5

    def loss(logits, labels, smoothing):
        return ours_module.loss(logits, labels, 0.0)

    given = {"learning_rate": learning_rate, "loss": loss}
    found = verdicts(given, "smoothing", "equation_3")
    names = [result.verdict.name for result in found]
    assert names == ["no smoothing", "another warm-up"]


def test_eos_before_padding_is_no_fault():
    def shift(targets):
        labels = ours_module.shift(targets)[1]
        first = torch.full((len(targets), 1), BOS)
        return torch.cat([first, labels[:, :-1]], dim=1), labels

    name = verdict({"shift": shift}, "shift").name
    assert name == "eos in the input of a padded row"


def test_a_loop_of_single_batches_may_say_so():
    def updates(model, optimizer, groups):
        if any(len(group) > 1 for group in groups):
            raise NotImplementedError("one batch a step")
        ours_module.updates(model, optimizer, groups)

    asked = ["step", "old_gradients", "accumulation"]
    given = verdicts({"updates": updates}, *asked)
    kinds = [r.verdict.kind for r in given]
    assert kinds == ["paper", "paper", "not tried"]


def test_a_mean_in_place_is_named():
    """It is right, and the first checkpoint is no longer what it was."""

    def average(states):
        mean = states[0]
        for name in mean:
            for state in states[1:]:
                mean[name] += state[name]
            mean[name] /= len(states)
        return mean

    said = verdict({"average": average}, "average").words
    assert "changes the checkpoints it is given" in said


# Whole models


def test_a_table_that_is_learned_may_begin_with_any_numbers():
    def change(model):
        torch.nn.init.normal_(model.positions.weight)

    given = built(change, positions="learned")
    assert verdict(given, "added_positions").name == "learned positions"


def test_a_residual_connection_that_is_missing_is_no_dropout_of_the_sum():
    right = "return self.norm(x + self.dropout(sublayer(x)))"
    with planted(("layers", right, right.replace("x + ", ""))):
        names = "norm_place", "residuals", "dropout_places"
        found = list(run(library(), probes_of(*names)))
    assert "no residual connection" in found[0].verdict.words
    assert [r.verdict.kind for r in found] == ["fault", "fault", "paper"]


def test_a_symbol_in_front_of_the_source_is_no_fault():
    """And what is said is said of what was seen."""

    def logits(model, source_ids, target_ids):
        source_ids = torch.nn.functional.pad(source_ids, (1, 0), value=BOS)
        return model(source_ids, target_ids)

    given = built() | {"logits": logits}
    names = "order_of_sublayers", "scores_factor"
    found = [x.verdict for x in verdicts(given, *names)]
    assert [x.kind for x in found] == ["not tried", "paper"]
    assert "a symbol in front?" in found[0].words
    assert found[1].words.endswith(", in the decoder's attention")


def test_half_precision_is_only_rounded():
    def logits(model, source_ids, target_ids):
        return model(source_ids, target_ids).softmax(-1)

    given = built(torch.nn.Module.bfloat16)
    assert verdict(given, "hidden_weights").kind == "paper"
    said = verdict(given | {"logits": logits}, "shape").words
    assert "these are probabilities" in said


def test_each_slice_of_a_packed_matrix_learns():
    """But not each row of a table of as many positions."""

    def change(model):
        model.packed = torch.nn.Parameter(torch.ones(32, 16))
        model.places = torch.nn.Parameter(torch.ones(32, 16))

    def logits(model, source_ids, target_ids):
        more = model.packed[:16].sum() + model.places[:7].sum()
        return model(source_ids, target_ids) + more

    given = built(change) | {"logits": logits}
    said = verdict(given, "weights_used").words
    assert "no gradient reaches packed[16:32]:" in said


def test_an_encoder_without_its_last_norm_has_a_name():
    def change(model):
        model.encoder.norm = torch.nn.Identity()

    given = built(change, norm="pre")
    found = [x.verdict for x in verdicts(given, "norm_place", "residuals")]
    assert found[0].name == "pre-norm without the encoder's last norm"
    assert found[1].kind == "paper"


def test_a_longest_sentence_is_no_fault():
    def logits(model, source_ids, target_ids):
        if source_ids.size(1) > 16:
            raise IndexError("index out of range")
        return model(source_ids, target_ids)

    given = built() | {"logits": logits}
    assert verdict(given, "distance").name == "a longest sentence"


# Decoding


@pytest.mark.parametrize("first", [[], [BOS]])
@pytest.mark.parametrize("end", [EOS, BOS])
def test_bos_may_be_chosen_and_is_named_only_if_it_is_put_there(first, end):
    """Nothing keeps this decoder from choosing bos. Then comes eos, which
    would also be right without that bos; or bos again, to the end."""

    def logits(model, source_ids, target_ids):
        scores = torch.zeros(*target_ids.shape, 8)
        scores[:, 0, BOS] = 2.0
        scores[:, :, end] += 1.0
        return scores

    def greedy(model, source_ids, max_extra):
        length = source_ids.size(1) - 1 + max_extra
        return [*first, BOS, *([EOS] if end == EOS else [BOS] * (length - 1))]

    given = built() | {"logits": logits, "greedy": greedy}
    assert verdict(given, "greedy").kind == ("fault" if first else "deviation")


@pytest.mark.parametrize("mistake", ["first end", "no penalty", "power"])
def test_another_search_is_one_deviation(mistake):
    def beam(*settings):
        return reference(*settings, EOS, mistake)

    found = verdicts({"beam": beam}, "beams", "brute_force")
    kinds = [r.verdict.kind for r in found]
    assert kinds == ["deviation", "not tried"]


@pytest.mark.parametrize("bans", [[PAD, BOS], [PAD], [BOS], []])
def test_a_decoder_may_forbid_padding_alone(bans):
    def search(model, source_ids, size, alpha, most):
        def logs(ids):
            out = model(source_ids, torch.tensor([[BOS, *ids]]))[0, -1]
            out = out.detach().double()
            out[bans] = -math.inf  # and then the softmax
            return out.log_softmax(-1)

        return reference(logs, size, alpha, most, EOS)

    def greedy(model, source_ids, extra):
        return search(model, source_ids, 1, 0, source_ids.size(1) - 1 + extra)

    def beam_search(model, source_ids, size, alpha, extra):
        most = source_ids.size(1) - 1 + extra
        return search(model, source_ids, size, alpha, most)

    given = built() | {"greedy": greedy, "beam_search": beam_search}
    wanted = "paper" if len(bans) == 2 else "deviation"
    assert verdict(given, "greedy").kind == wanted
    kinds = {r.verdict.kind for r in verdicts(given, "beams")}
    assert "fault" not in kinds and (wanted == "paper") == ("paper" in kinds)


@pytest.mark.parametrize("end", [2, -1])
def test_eos_may_be_what_the_decoder_begins_with(end):
    """Then it is no ban of bos: a search that it doesn't end is wrong."""

    def beam(*settings):
        return reference(*settings, end)

    given = {"beam": beam, "PAD": 1, "BOS": 2, "EOS": 2}
    kinds = {r.verdict.kind for r in verdicts(given, "beams", "brute_force")}
    assert (kinds == {"paper"}) == (end == 2)


# The adapter, the report, the command


def test_a_date_is_a_seed():
    drawn = []
    for seed in 20_261_130, -1:
        Adapter(built(), seed).random(0)
        drawn.append(np.random.random())
    assert drawn[0] != drawn[1]


def test_every_probe_is_of_a_row_and_leads_to_its_place(root):
    text = (root / "book" / "fidelity.yml").read_text("utf-8")
    rows = {row["id"]: row for row in yaml.safe_load(text)}
    before = set()
    for one in conformance.PROBES:
        assert one.row in rows, one.name
        assert {*one.after} <= before, one.name
        assert one.name not in before, one.name
        before.add(one.name)
        address = page(one.label).removeprefix(f"{LOCAL}/")
        file, _, anchor = address.partition("#")
        source = (root / file).with_suffix(".md").read_text("utf-8")
        assert f"({anchor})=" in source.replace("_", "-"), one.name
        assert one.says.endswith("."), one.name
    assert {*CONSEQUENCES} == {one.label for one in conformance.PROBES}
    readme = (root / "README.md").read_text("utf-8")
    assert f"{len(conformance.PROBES)} experiments" in readme


def test_the_suite_needs_torch_and_numpy_alone():
    """The library's own adapter is loaded when it is asked for."""
    code = "import sys; import torch, numpy; at_first = {*sys.modules}; "
    code += "import transformer_conformance.__main__; "
    code += "print(*({*sys.modules} - at_first))"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    theirs = {name.partition(".")[0] for name in said.split()}
    others = theirs - {*sys.stdlib_module_names} - {"torch", "numpy"}
    others = {name for name in others if not name.startswith("_")}
    assert others == {"transformer_conformance"}


def test_nothing_tried_is_no_success(tmp_path, capsys):
    assert main(["--template"]) == 0
    text = capsys.readouterr().out
    assert {*re.findall(r"^def (\w+)", text, re.M)} == {*FUNCTIONS}
    assert main([str(written(tmp_path, text))]) == 2
    assert "Nothing was tried" in capsys.readouterr().out


NO_RAMP = (
    "def learning_rate(step, d_model, warmup_steps):\n"
    "    return d_model**-0.5 * step**-0.5\n"
)


def test_a_fault_is_an_exit_code_and_a_page(tmp_path, capsys):
    file, out = written(tmp_path, NO_RAMP), tmp_path / "mine.html"
    assert main([str(file), "--html", str(out)]) == 1
    said = capsys.readouterr().out
    assert "there is no ramp" in said and "schedule.html#schedule-rate" in said
    assert "Read on in the chapter schedule: A rate that peaks" in said
    assert "there is no ramp" in out.read_text("utf-8")
    assert max(map(len, said.splitlines())) <= 78  # as wide as the page


def test_a_known_deviation_is_accepted_and_a_new_one_fails(tmp_path, capsys):
    text = "def learning_rate(step, d_model, warmup_steps):\n    return 1e-4\n"
    file, known = written(tmp_path, text), tmp_path / "known.json"
    only = ["--only", "learning_rate"]
    assert main([str(file), "--json", str(known), *only]) == 0
    found = json.loads(known.read_text("utf-8"))
    assert found["version"] == 1 and found["model"] == "encoder-decoder"
    [one] = [x for x in found["probes"] if x["name"] == "equation_3"]
    assert one["verdict"] == "deviation"
    assert one["deviation"] == "a constant rate"
    assert main([str(file), "--known", str(known), *only]) == 0
    known.write_text('{"version": 1, "probes": []}', "utf-8")
    assert main([str(file), "--known", str(known), *only]) == 1
    assert "new: equation_3, a constant rate" in capsys.readouterr().out
    assert main([str(file), "--json", str(known), *only]) == 0
    mean = "{x: sum(s[x] for s in states) / len(states) for x in states[0]}"
    written(tmp_path, f"def average(states):\n    return {mean}\n")
    only[1] += ",average"
    assert main([str(file), "--known", str(known), *only]) == 1
    assert "no longer tried: equation_3\n" in capsys.readouterr().out
    known.write_text("[]", "utf-8")
    assert main([str(file), "--known", str(known), *only]) == 2
    nowhere = str(tmp_path / "no" / "x.json")
    assert main([str(file), "--json", nowhere, *only]) == 2


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "mine.py is not there"),
        ("def mask(ids): pass", "is it meant to be 'masks'"),
        (NO_RAMP.encode("utf-16"), "is UTF-16"),
        ("ARRAYS = 'jax'", 'give "torch" or "numpy"'),
        ("assert False", "AssertionError\n  at mine.py, line 1 of <module>"),
    ],
)
def test_an_adapter_that_cannot_be_read_is_named(
    tmp_path, capsys, monkeypatch, content, words
):
    file = tmp_path / "mine.py"
    monkeypatch.setenv("HOME", str(tmp_path))
    if content is not None:
        text = content if isinstance(content, bytes) else content.encode()
        file.write_bytes(text)
    assert main(["~/mine.py"]) == 2
    assert words in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "is not a Python file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "def _mask(ids): pass",
        "mask = 5",
        "def mask(ids): pass\ndef masks(x, y): pass",
        "from transformer_lib import learning_rate as learn_rate",
    ],
)
def test_only_the_adapters_own_functions_are_misspelt(tmp_path, line):
    Adapter.load(written(tmp_path, line + "\n"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_an_adapter_that_runs(name, tmp_path, capsys):
    if name == "huggingface":
        pytest.importorskip("transformers")
    assert main(["--example", name]) == 0
    text = capsys.readouterr().out
    assert f"--example {name} >" in text
    file = written(tmp_path, text)
    assert main([str(file), "--only", "future"]) == 0


def test_only_what_exists_can_be_asked_for(tmp_path, capsys):
    file = written(tmp_path, NO_RAMP)
    assert main([str(file), "--only", "fuutre"]) == 2
    said = "--only fuutre cannot be used: there is no probe 'fuutre'"
    assert said in capsys.readouterr().err
    assert main([str(file), "--known", str(tmp_path / "no.json")]) == 2
    assert "no.json cannot be used" in capsys.readouterr().err


def test_a_pipe_of_another_encoding_gets_the_signs(tmp_path):
    command = [sys.executable, "-m", "transformer_conformance"]
    command += [str(written(tmp_path, NO_RAMP)), "--only", "learning_rate"]
    narrow = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, env=narrow, capture_output=True)
    assert done.returncode == 1 and "✗" in done.stdout.decode("utf-8")


def test_an_adapter_cannot_end_the_suite(tmp_path, capsys):
    """CI would take its `sys.exit(0)` for "no fault"."""
    file = written(tmp_path, "raise SystemExit(0)")
    assert main([str(file)]) == 2
    text = "def positions(length, d_model):\n    raise SystemExit(0)\n"
    file = written(tmp_path, text)
    assert main([str(file), "--only", "positions"]) == 1
    assert "SystemExit" in capsys.readouterr().out


def test_what_an_adapter_raises_is_shown_with_its_line_and_once():
    code = "def positions(length, d_model):\n    return undefined\n"
    functions = {}
    file = PACKAGE.parent / "transformer_lib_of_mine/mine.py"
    exec(compile(code, str(file), "exec"), functions)
    found = verdicts(functions, "positions")
    words = found[0].verdict.words
    assert "NameError" in words and "mine.py, line 2 of positions" in words
    assert {r.verdict.kind for r in found} == {"fault"}
    assert [r.cause for r in found].count(None) == 1


@pytest.mark.parametrize(
    "change, name, words",
    [
        ({"logits": lambda x, y, z, masks: z}, "shape", "argument: 'masks'"),
        ({"logits": lambda x, y, z: None}, "shape", "logits returns None"),
        ({"logits": lambda x, y, z: (z, 0)}, "shape", "logits are tuple, not"),
        ({"logits": lambda x, y, z: z}, "shape", "logits are (3, 5), not"),
        ({"build": lambda *x: torch.nn.Module()}, "shape", "the required"),
        ({"encode": lambda x, y: (y, 0)}, "both_ways", "returns a tuple"),
        ({"greedy": lambda *x: ([3], 0.5)}, "greedy", "returns ([3], 0.5)"),
    ],
)
def test_another_form_than_the_templates_is_a_fault(change, name, words):
    """And so is a model without a forward pass."""
    found = verdict(built() | change, name)
    assert found.kind == "fault" and words in found.words


def test_what_the_template_leaves_open_hides_nothing(tmp_path):
    """`updates`, not filled in, does not stand before `update`."""
    text = conformance.template().replace(
        'for more than one.\n    """\n    raise NotImplementedError',
        'for more than one.\n    """\n    return None',
    )
    adapter = Adapter.load(written(tmp_path, text))
    [result] = run(adapter, probes_of("step"))
    assert "nothing moved" in result.verdict.words


def test_an_adapter_imports_its_own_neighbour(tmp_path, monkeypatch):
    """And no other module of that name."""
    for folder, number in (("mine", 1), ("other", 2)):
        (tmp_path / folder).mkdir()
        text = f"PAD = {number}\n"
        (tmp_path / folder / "of_mine.py").write_text(text, "utf-8")
    file = tmp_path / "mine" / "adapter.py"
    file.write_text("from of_mine import PAD\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "other")
    assert Adapter.load(file).PAD == 1


def test_special_ids_are_no_words():
    """Nor is 0, which many libraries take for padding."""
    plain = Adapter({})
    assert (plain.PAD, plain.BOS, plain.EOS) == (0, 2, 3)
    assert {*plain.words(99, size=6).tolist()} == {1, 4, 5}
    rows = plain.ended(torch.full((2, 4), 9), 3, 4).tolist()
    assert rows == [[9, 9, 3, 0], [9, 9, 9, 3]]
    other = Adapter({"PAD": 1, "BOS": 4})
    assert {*other.words(99, size=6).tolist()} == {2, 5}


def test_a_probe_leaves_the_callers_numbers_and_threads_alone():
    def attention(query, key, value, mask=None):
        torch.rand(1), np.random.rand()
        threads.append(torch.get_num_threads())
        raise NotImplementedError

    threads = []
    at_first = torch.get_num_threads()
    torch.set_num_threads(2)
    before = torch.get_rng_state(), np.random.get_state()[1]
    [result, *_] = verdicts({"attention": attention}, "attention")
    assert result.verdict.words == "not implemented"
    assert {*threads} == {1} and torch.get_num_threads() == 2
    torch.set_num_threads(at_first)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


@pytest.mark.parametrize(
    "a, b, same",
    [
        ([1.0, 2.0], [1.0, 2.00019], True),
        ([1.0, 2.0], [1.0, 2.00021], False),
        ([1.09e-6], [1e-6], True),  # as if the number were 0.001
        ([1.11e-6], [1e-6], False),
        ([1.0, 1.0], [1.0], False),
        ([math.inf], [math.inf], False),
        ([], [], True),
    ],
)
def test_close_means_by_the_largest_number(a, b, same):
    assert close(torch.tensor(a), torch.tensor(b)) is same


def test_arrays_may_be_numpys():
    def attention(query, key, value, mask=None):
        scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
        if mask is not None:
            scores = np.where(mask, scores, -1e30)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ value

    def encoder_layer(x, mask, attention, network, norm_1, norm_2):
        x = norm_1(np.add(x, attention(x, x, mask)))
        return norm_2(np.add(x, network(x)))

    def beam(next_logs, *settings):
        assert isinstance(next_logs([]), np.ndarray)
        return np.array(reference(next_logs, *settings, EOS))

    given = {"attention": attention, "encoder_layer": encoder_layer}
    given |= {"beam": beam, "ARRAYS": "numpy"}
    found = verdicts(given, "beams", "attention", "encoder_layer")
    wrong = [r for r in found if r.verdict.kind != "paper"]
    assert len(found) == 6 and not wrong, conformance.as_text(wrong)


def test_a_probes_own_error_is_no_fault(monkeypatch):
    monkeypatch.setattr(conformance.model.Trace, "linears", math.sqrt)
    found = verdict(built(), "activation")
    assert found.kind == "not tried"
    assert "which is no fault of yours (TypeError" in found.words
    # nor is it taken for theirs because both are within a `no_grad`
    monkeypatch.setattr(conformance.model, "mode", math.sqrt)
    encode = torch.no_grad()(ours_module.encode)
    assert verdict(built() | {"encode": encode}, "batch").kind == "not tried"


def test_many_that_follow_are_one_line():
    probes = conformance.PROBES[:8]
    results = [Result(probes[0], fault("wrong"), 0.0)]
    for one in probes[1:]:
        results.append(Result(one, fault("so too"), 0.0, probes[0]))
    text = conformance.as_text(results)
    names = ", ".join(one.name for one in probes[1:])
    told = f"7 that follow from {probes[0].name}: {names}"
    assert told in " ".join(text.split())
    assert "so too" not in text
    assert "1 fault, 7 that follow from these" in summary(results)
    page = conformance.as_html(results, "mine")
    assert page.count("<tr>") == 2  # the heading, and one fault
    assert "7 more verdicts follow from this</summary>" in page
    assert page.count("<li>") == page.count("so too") == 7


def test_nothing_that_is_planted_stays():
    """Nor as an attribute of the package, which is asked first."""
    before = importlib.import_module("transformer_lib.attention")
    with planted(("attention", "/ math.sqrt(d_k)", "/ d_k")):
        assert importlib.import_module(before.__name__) is not before
        assert importlib.import_module(ours_module.__name__) is not ours_module
    for module in before, ours_module:
        assert importlib.import_module(module.__name__) is module
    assert conformance.ours is ours_module
    with pytest.raises(ValueError, match="'nowhere' is not in"):
        with planted(("attention", "nowhere", "")):
            importlib.import_module(before.__name__)


# The clinic's function


def a_step(
    model, optimizer, source_ids, target_ids, labels, clear=True, ignore=0
):
    if clear:
        optimizer.zero_grad()
    logits = model(source_ids, target_ids).flatten(0, 1)
    torch.nn.functional.cross_entropy(
        logits, labels.flatten(), ignore_index=ignore
    ).backward()
    optimizer.step()


def a_warm_up(model, optimizer, *batch, rate=1e-5):
    """Each step has another rate; the clinic holds it constant."""
    steps = model.steps = getattr(model, "steps", 0) + 1
    optimizer.param_groups[0]["lr"] = rate * steps
    a_step(model, optimizer, *batch)


LABELS = torch.tensor([[5, 6, EOS], [7, 8, EOS]])
PATIENTS = [  # what is marked first, the fault in the library, `probe`'s
    ("", (), {"train_step": a_warm_up}),
    ("your rate", (), {"train_step": partial(a_warm_up, rate=1e-3)}),
    ("your training step", (), {"train_step": lambda *batch: None}),
    ("your batch", (), {"batch": (LABELS, LABELS, LABELS)}),
    ("your training step", (), {"train_step": partial(a_step, clear=False)}),
    ("padding in the loss", (), {"train_step": partial(a_step, ignore=-100)}),
    (
        "the order of words",
        ("model", "x = self.positions(x, offset)", "pass"),
        {},
    ),
    (
        "positions in the decoder",
        (
            "model",
            "x = self.embed(target_ids, self.target_embedding, offset)",
            "x = self.target_embedding(target_ids)",
        ),
        {},
    ),
    (
        "residual connections",
        ("layers", f"second(x, lambda x: {ACROSS})", f"second.norm({ACROSS})"),
        {},
    ),
    (
        "loss before training",
        (
            "model",
            "return self.pre_softmax(hidden)",
            "return self.pre_softmax(hidden).softmax(-1)",
        ),
        {},
    ),
]


@pytest.mark.parametrize("marked, change, given", PATIENTS)
def test_the_clinic_marks_the_bug(marked, change, given, capsys):
    with planted(*[change] if change else []):
        model = library().build(100, 2, 64, 128, 4, 0.1)
        found = probe(model, vocab_size=100, **given)
    first = next((name for name, fine in found.items() if not fine), "")
    assert first == marked
    said = capsys.readouterr().out
    assert marked or max(map(len, said.splitlines())) <= 78


def test_a_step_may_switch_dropout_on_again():
    def step(model, *batch):
        model.train()
        return a_step(model, *batch)

    model = library().build(100, 2, 64, 128, 4, 0.3)
    found = probe(model, vocab_size=100, train_step=step)
    assert found["padding in the loss"] and "train" not in vars(model)


def test_the_clinic_says_where_a_decoder_alone_goes(capsys):
    adapter = Adapter.load(PACKAGE / "examples/gpt.py")
    found = probe(adapter.build(50, 1, 16, 64, 2, 0.0), vocab_size=50)
    assert found == {"a first pass": False}
    assert "--example gpt" in capsys.readouterr().out


def test_the_clinic_stops_at_nan(capsys):
    class Nowhere(Transformer):
        def project(self, hidden):
            return super().project(hidden) / 0.0

    sizes = dict(N=1, d_model=16, d_ff=16, h=2)
    found = probe(Nowhere(TransformerConfig(50, **sizes)), vocab_size=50)
    assert found == {"loss before training": False}
    assert "nothing else can be tried" in capsys.readouterr().out


def test_the_clinic_says_what_it_did_not_see(capsys):
    """A rate that the step leaves as it was given is nobody's; one's own
    optimizer may be shown."""
    model = library().build(100, 1, 32, 64, 4, 0.1)
    found = probe(model, vocab_size=100, train_step=a_step)
    assert "your rate" not in found
    assert "---- your rate: not tried" in capsys.readouterr().out
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    found = probe(
        model, vocab_size=100, train_step=a_step, optimizer=optimizer
    )
    assert found["your rate"] is False
