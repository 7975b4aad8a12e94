"""The conformance suite: verdicts on what is right, and on what is not."""

import importlib
import math
import re
import subprocess
import sys
import time
from functools import partial, wraps
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import transformer_conformance as conformance
from transformer_book.plant import ours as library
from transformer_book.plant import planted
from transformer_book.specimen import Specimen
from transformer_conformance import Adapter, run
from transformer_conformance import ours as ours_module
from transformer_conformance.__main__ import main
from transformer_conformance.clinic import probe
from transformer_conformance.core import (
    FUNCTIONS,
    Result,
    _cause,
    close,
    deviation,
    fault,
)
from transformer_conformance.decoding import reference
from transformer_conformance.places import CONSEQUENCES, LOCAL, page
from transformer_conformance.positions import judge, other_tables
from transformer_conformance.report import summary
from transformer_conformance.trace import (
    BATCH,
    SOURCE,
    TARGET,
    batch_first,
)
from transformer_lib import (
    BOS,
    EOS,
    Transformer,
    TransformerConfig,
    Translator,
)

OURS = conformance.__path__[0] + "/ours.py"


SOURCES: list[list[int]] = []  # all rows that the probes have given


@pytest.fixture(scope="module")
def timed():
    """The suite's verdicts on the library, and the processor's seconds."""

    def logits(model, source_ids, target_ids):
        SOURCES.extend(source_ids.tolist())
        return ours_module.logits(model, source_ids, target_ids)

    start = time.process_time()
    results = list(run(Adapter(vars(ours_module) | {"logits": logits})))
    return results, time.process_time() - start


@pytest.fixture(scope="module")
def ours(timed):
    return timed[0]


def test_the_library_is_the_paper(ours):
    kinds = {"paper", "not tried"}
    wrong = [r for r in ours if r.verdict.kind not in kinds]
    assert not wrong, conformance.as_text(wrong)
    untried = {
        n for r in ours for n in r.probe.needs if r.verdict.kind != "paper"
    }
    assert untried <= {"embeddings", "encoder_layer", "decoder_layer"}


def test_the_suite_takes_less_than_a_minute(timed):
    assert timed[1] < 60


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


def test_the_suite_needs_torch_and_numpy_alone():
    """The library's own adapter is loaded when it is asked for."""
    code = "import sys; import torch, numpy; at_first = {*sys.modules}; "
    code += "import transformer_conformance.__main__; "
    code += "print(*({*sys.modules} - at_first))"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    theirs = {name.partition(".")[0] for name in said.split()}
    others = theirs - {*sys.stdlib_module_names} - {"torch", "numpy"}
    assert others == {"transformer_conformance"}


def test_an_empty_template_is_not_tried(tmp_path, capsys):
    assert main(["--template"]) == 0
    file = tmp_path / "mine.py"
    text = capsys.readouterr().out
    file.write_text(text, "utf-8")
    defined = re.findall(r"^def (\w+)", text, re.M)
    assert {*defined} == {*FUNCTIONS}
    assert main([str(file)]) == 0
    assert "0 faults" in capsys.readouterr().out


def test_a_fault_is_an_exit_code_and_a_page(tmp_path, capsys):
    file, out = tmp_path / "mine.py", tmp_path / "mine.html"
    file.write_text(
        "def learning_rate(step, d_model, warmup_steps):\n"
        "    return d_model**-0.5 * step**-0.5\n",
        "utf-8",
    )
    assert main([str(file), "--html", str(out)]) == 1
    said = capsys.readouterr().out
    assert "there is no ramp" in said and "schedule.html#schedule-rate" in said
    assert "Read on in the chapter schedule: A rate that peaks" in said
    assert "there is no ramp" in out.read_text("utf-8")
    assert max(map(len, said.splitlines())) <= 78  # as wide as the page


def test_what_an_adapter_raises_is_shown_with_its_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "def positions(length, d_model):\n    return undefined\n", "utf-8"
    )
    assert main([str(file)]) == 1
    said = capsys.readouterr().out
    assert "NameError" in said and "mine.py, line 2 of positions" in said


def test_a_file_that_is_missing_is_not_there(tmp_path, capsys):
    assert main([str(tmp_path / "mine.py")]) == 2
    assert "mine.py is not there" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "is not a Python file" in capsys.readouterr().err


def test_what_the_template_leaves_open_hides_nothing(tmp_path):
    """`updates`, not filled in, does not stand before `update`."""
    text = conformance.template().replace(
        'for more than one.\n    """\n    raise NotImplementedError',
        'for more than one.\n    """\n    return None',
    )
    file = tmp_path / "mine.py"
    file.write_text(text, "utf-8")
    [verdict] = [
        result.verdict
        for result in run(Adapter.load(file))
        if result.probe.name == "step"
    ]
    assert "nothing moved" in verdict.words
    assert "clear the gradients after step()" in verdict.words


def test_a_misspelt_function_is_named(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def possitions(length, d_model):\n    pass\n", "utf-8")
    assert main([str(file)]) == 2
    assert "'positions'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, slip",
    [
        ("def mask(ids): pass", True),
        ("def _mask(ids): pass", False),
        ("mask = 5", False),
        ("def mask(ids): pass\ndef masks(x, y): pass", False),
        ("from transformer_lib import learning_rate as learn_rate", False),
    ],
)
def test_only_the_adapters_own_functions_are_misspelt(tmp_path, line, slip):
    file = tmp_path / "mine.py"
    file.write_text(line + "\n", "utf-8")
    if slip:
        with pytest.raises(ValueError, match="is it meant to be 'masks'"):
            Adapter.load(file)
    else:
        Adapter.load(file)


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


def test_an_adapter_in_the_checkout_has_lines_of_its_own(root):
    for name in ("mine.py", "transformer_lib_of_mine/mine.py"):
        text = "def positions(length, d_model):\n    return undefined\n"
        functions = {}
        exec(compile(text, str(root / name), "exec"), functions)
        [result] = verdicts(functions, "formula")
        assert "mine.py, line 2 of positions" in result.verdict.words


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
        ([2e-3], [1e-3], False),
        ([1000.0], [1000.09], True),
        ([1.0, 1.0], [1.0], False),
        ([math.inf], [math.inf], False),
        ([], [], True),
    ],
)
def test_close_means_by_the_largest_number(a, b, same):
    assert close(torch.tensor(a), torch.tensor(b)) is same


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


def test_what_padding_attends_to_is_of_no_account():
    """Many masks close the rows of padding, too."""

    def masks(source_ids, target_ids):
        source, target = ours_module.masks(source_ids, target_ids)
        return source & source.mT, target & (target_ids != 0)[:, None, :, None]

    kinds = [r.verdict.kind for r in verdicts({"masks": masks}, "masks")]
    assert kinds == ["paper", "paper"]


def test_a_wrong_row_of_a_mask_is_shown_beside_the_right_one():
    def masks(source_ids, target_ids):
        source, target = ours_module.masks(source_ids, target_ids)
        target[1, 0, 2, 1] = False
        return source, target

    result = verdicts({"masks": masks}, "masks")[1]
    assert "at position 2" in result.verdict.words
    assert "yours [1, 0, 1, 0]\nright [1, 1, 1, 0]" in result.verdict.words


def test_one_cause_is_one_fault():
    def attention(query, key, value, mask=None):
        return (query @ key.mT).softmax(-1) @ value

    results = verdicts({"attention": attention}, "equation", "variance")
    first, second = (result.verdict.kind for result in results)
    assert first == second == "fault"
    assert results[1].cause is results[0].probe
    assert "1 fault, 1 that follows from these" in summary(results)


def test_misplaced_positions_are_listed():
    """And a table of other numbers is nothing of the kind."""
    places = [*range(1, 50), 0]
    tables = {
        "the positions 1, 2, 3": ours_module.positions(50, 16)[places],
        "the numbers differ": torch.randn(50, 16),
        "by up to 0.02 from": ours_module.positions(50, 16).half().float()
        + 0.02 * (torch.arange(50) == 9)[:, None],
    }
    for words, table in tables.items():
        given = {"positions": lambda length, d_model, table=table: table}
        [result] = verdicts(given, "formula")
        assert words in result.verdict.words


@pytest.mark.parametrize("words", other_tables(50, 16))
def test_each_slip_in_the_positions_has_its_own_words(words):
    verdict = judge(other_tables(50, 16)[words])
    assert verdict.kind == "fault" and verdict.words == words


def test_positions_of_tensor2tensor_are_named():
    def positions(length, d_model):
        steps = torch.arange(d_model // 2) / (d_model // 2 - 1)
        angle = torch.arange(length)[:, None] / 10_000**steps
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    found = verdicts({"positions": positions}, "formula", "wavelengths")
    names = {r.probe.name: r.verdict.name for r in found}
    assert names["formula"] == "sines and cosines concatenated"
    assert names["wavelengths"].startswith("longest wavelength exactly")


@pytest.mark.parametrize("token, name", [(EOS, "eos"), (1, "1"), (9, "9")])
@pytest.mark.parametrize("counted", [True, False])
def test_a_token_that_costs_nothing_is_named(token, name, counted):
    def loss(logits, labels, smoothing):
        kept = labels.masked_fill(labels == token, 0)
        per_token = ours_module.loss(logits, kept, smoothing)
        share = (kept != 0).sum() / (labels != 0).sum()
        return per_token * share if counted else per_token

    [result] = verdicts({"loss": loss}, "smoothing")
    assert f"labels that are {name} are left out" in result.verdict.words
    assert ("though counted" in result.verdict.words) is counted


def test_a_mean_over_padding_is_one_deviation():
    def loss(logits, labels, smoothing):
        share = (labels != 0).sum() / labels.numel()
        return share * ours_module.loss(logits, labels, smoothing)

    names = ["smoothing", "no_smoothing", "padding_is_free"]
    found = {r.probe.name: r for r in verdicts({"loss": loss}, *names)}
    said = {found[name].verdict.name for name in names}
    assert said == {"a mean over padding too"}
    assert [bool(found[name].cause) for name in names] == [False, True, True]


def test_a_line_that_raises_is_one_fault():
    def logits(model, source_ids, target_ids):
        raise IndexError(f"a table of 5, for {source_ids.size(1)} words")

    given = {"build": ours_module.build, "logits": logits}
    results = verdicts(given, "shape", "future", "padding", "norm_place")
    assert {result.verdict.kind for result in results} == {"fault"}
    assert [bool(result.cause) for result in results] == [False, *[True] * 3]


def test_two_deviations_are_two():
    """Unless they have one name."""
    probes = {one.name: one for one in conformance.PROBES}
    first, second = probes["smoothing"], probes["no_smoothing"]
    assert first.name in second.after
    found = {first.name: Result(first, deviation("a", ""), 0.0)}
    assert _cause(second, deviation("b", ""), found) is None
    assert _cause(second, deviation("a", ""), found) is first
    found = {first.name: Result(first, fault("c"), 0.0)}
    assert _cause(second, deviation("b", ""), found) is None
    assert _cause(second, fault("d"), found) is first


def test_what_many_do_on_purpose_is_named():
    def learning_rate(step, d_model, warmup_steps):
        return 1e-4

    def loss(logits, labels, smoothing):
        return ours_module.loss(logits, labels, 0.0)

    given = {"learning_rate": learning_rate, "loss": loss}
    names = [r.verdict.name for r in verdicts(given, "learning_rate", "loss")]
    assert "a constant rate" in names and "no smoothing" in names


def test_a_model_of_fixed_length_is_told_so():
    """And one whose table of positions ends is no fault."""

    def logits(model, source_ids, target_ids):
        if source_ids.size(1) > 16:
            raise IndexError("index out of range")
        padding = torch.zeros(len(source_ids), 16, dtype=torch.long)
        source, target = padding.clone(), padding
        source[:, : source_ids.size(1)] = source_ids
        target[:, : target_ids.size(1)] = target_ids
        return model(source, target)[:, : target_ids.size(1)]

    given = {"build": ours_module.build, "logits": logits}
    far, seen = verdicts(given, "distance", "hidden_weights")
    assert far.verdict.name == "a longest sentence"
    assert "works on 16 positions" in seen.verdict.words


def test_every_source_ends_in_eos(ours):
    """As the template promises: then padding, and nothing else."""
    assert len(SOURCES) > 1000
    for row in SOURCES:
        words = [i for i in row if i != 0]
        assert not words or words[-1] == EOS
        assert words == row[: len(words)] and EOS not in words[:-1]


def test_numpy_is_as_good(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "ARRAYS = 'numpy'\n"
        "def attention(query, key, value, mask=None):\n"
        "    scores = query @ np.swapaxes(key, -1, -2)\n"
        "    scores = scores / query.shape[-1] ** 0.5\n"
        "    if mask is not None:\n"
        "        scores = np.where(mask, scores, -1e30)\n"
        "    scores = scores - scores.max(-1, keepdims=True)\n"
        "    weights = np.exp(scores)\n"
        "    return weights / weights.sum(-1, keepdims=True) @ value\n",
        "utf-8",
    )
    results = [
        r for r in run(Adapter.load(file)) if r.probe.needs == ("attention",)
    ]
    assert len(results) >= 6
    assert {r.verdict.kind for r in results} == {"paper"}


def test_numpys_arrays_in_a_pair_or_by_name_are_tensors():
    def shift(targets):
        return tuple(x.numpy() for x in ours_module.shift(targets))

    def average(states):
        first = states[0]
        return {name: np.mean([s[name] for s in states], 0) for name in first}

    given = {"ARRAYS": "numpy", "shift": shift, "average": average}
    found = verdicts(given, "shift", "average")
    assert [r.verdict.kind for r in found] == ["paper", "paper"]


def test_parts_that_are_given_work_on_numpys_arrays():
    def encoder_layer(x, mask, attention, network, norm_1, norm_2):
        x = norm_1(np.add(x, attention(x, x, mask)))
        return norm_2(np.add(x, network(x)))

    def decoder_layer(y, memory, masks, attentions, network, norms):
        own, across = attentions
        y = norms[0](np.add(y, own(y, y, masks[1])))
        y = norms[1](np.add(y, across(y, memory, masks[0])))
        return norms[2](np.add(y, network(y)))

    def beam(next_logs, beam_size, alpha, limit):
        assert isinstance(next_logs([]), np.ndarray)
        return np.array(reference(next_logs, beam_size, alpha, limit, EOS))

    given = dict(encoder_layer=encoder_layer, decoder_layer=decoder_layer)
    given |= {"beam": beam, "ARRAYS": "numpy"}
    asked = ["encoder_layer", "decoder_layer", "beams"]
    found = verdicts(given, *asked)
    kinds = {r.probe.name: r.verdict.kind for r in found}
    assert [kinds[name] for name in asked] == ["paper"] * 3


# What others' code has shown


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

    given = {"logits": logits, "greedy": greedy, "build": ours_module.build}
    found = verdicts(given, "greedy")
    kinds = {r.probe.name: r.verdict.kind for r in found}
    if first:
        assert kinds["greedy"] == "fault"
    else:
        assert kinds["greedy"] == "deviation"
        goes_on = "paper" if end == BOS else "not tried"
        assert kinds["limit"] == goes_on


def test_scores_that_change_with_the_targets_length_are_named():
    def logits(model, source_ids, target_ids):
        turned = target_ids.size(1) % 2
        scores = ours_module.logits(model, source_ids, target_ids)
        return scores.roll(turned, -1)

    def greedy(model, source_ids, max_extra):
        length = source_ids.size(1) - 1 + max_extra
        ids = torch.full((1, length + 1), 0)
        ids[0, 0] = BOS
        for place in range(length):
            scores = logits(model, source_ids, ids)[0, place]
            ids[0, place + 1] = scores.argmax()
        found = ids[0, 1:].tolist()
        return found[: found.index(EOS) + 1] if EOS in found else found

    given = {"logits": logits, "greedy": greedy, "build": ours_module.build}
    [result] = [
        r for r in verdicts(given, "greedy") if r.probe.name == "greedy"
    ]
    assert "change with the target's length" in result.verdict.words


def test_eos_before_padding_is_no_fault():
    def shift(targets):
        width = max(map(len, targets))
        labels = torch.zeros(len(targets), width, dtype=torch.long)
        for row, target in enumerate(targets):
            labels[row, : len(target)] = torch.tensor(target)
        first = torch.full((len(targets), 1), BOS)
        return torch.cat([first, labels[:, :-1]], dim=1), labels

    [result] = verdicts({"shift": shift}, "shift")
    assert result.verdict.name == "eos in the input of a padded row"


def test_a_loop_of_single_batches_may_say_so():
    def updates(model, optimizer, groups):
        if any(len(group) > 1 for group in groups):
            raise NotImplementedError("one batch a step")
        ours_module.updates(model, optimizer, groups)

    asked = ["step", "old_gradients", "accumulation"]
    given = verdicts({"updates": updates}, *asked)
    kinds = [r.verdict.kind for r in given]
    assert kinds == ["paper", "paper", "not tried"]


@pytest.mark.parametrize("slips, named", [(3, True), (8, False)])
def test_what_a_beam_search_does_nearly_always_is_named(slips, named):
    """No penalty in 57 of 60 searches, or in 52 only."""
    searches = count()

    def beam(next_logs, beam_size, alpha, limit):
        settings = next_logs, beam_size, alpha, limit, EOS
        found = reference(*settings, mistake="no penalty")
        return found[:-1] if next(searches) < slips else found

    asked = probes_of("beams")
    [result] = run(Adapter({"beam": beam}), asked)
    verdict = result.verdict
    assert verdict.kind == "fault"
    assert ("57 are what this mistake gives: divide" in verdict.words) is named
    assert ("are what this mistake gives" in verdict.words) is named


def of_layers(*kinds, width=None):
    """A `build` of models with nothing but these parts in each layer."""

    class Model(torch.nn.Module):
        def __init__(self, d, d_ff, count):
            super().__init__()
            inner = width(d) if width else d_ff
            parts = {
                "matrix": lambda: torch.nn.Linear(d, d, bias=False),
                "biased": lambda: torch.nn.Linear(d, d),
                "in": lambda: torch.nn.Linear(d, inner),
                "out": lambda: torch.nn.Linear(inner, d),
                "norm": lambda: torch.nn.LayerNorm(d),
            }
            self.parts = torch.nn.ModuleList(
                parts[kind]() for _ in range(count) for kind in kinds
            )

    def build(vocab_size, N, d_model, d_ff, h, dropout):
        return Model(d_model, d_ff, N)

    return build


NETWORKS = ["in", "out"] * 2
NORMS = ["norm"] * 5


@pytest.mark.parametrize(
    "kinds, width, kind, words",
    [
        (["biased"] * 9, lambda d: 4 * d, "fault", "is W^O there"),
        (["biased"] * 9, None, "fault", "biases in attention but for W^O"),
        (["matrix"] * 9, None, "fault", "3 of 12 matrices"),
        (["biased"] * 12, lambda d: 64, "deviation", "is 64 wide"),
        (["matrix"] * 12, lambda d: 2048, "deviation", "is 2,048 wide"),
        (["matrix"] * 15, None, "deviation", "15 of (16, 16)"),
    ],
)
def test_a_layers_parts_are_told_from_its_weights(kinds, width, kind, words):
    build = of_layers(*kinds, *NETWORKS, *NORMS, width=width)
    [verdict] = [
        r.verdict
        for r in verdicts({"build": build}, "layer_weights")
        if r.probe.name == "layer_weights"
    ]
    assert verdict.kind == kind and words in verdict.words
    if width and kind == "deviation":
        biased = "biased" in kinds
        assert verdict.name == (
            "biases in attention" if biased else "a fixed d_ff"
        )


@pytest.mark.parametrize("last", [True, False])
def test_a_relu_on_the_projections_is_named(last):
    def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
        query, key, value = (
            (y @ w).relu().unflatten(-1, (h, -1)).transpose(1, 2)
            for y, w in ((x, w_q), (memory, w_k), (memory, w_v))
        )
        heads = torch.nn.functional.scaled_dot_product_attention(
            query, key, value
        )
        joined = heads.transpose(1, 2).flatten(2)
        return joined @ w_o if last else joined

    given = {"multi_head": multi_head}
    said = verdicts(given, "multi_head")[0].verdict.words
    assert "a ReLU follows the projections" in said
    assert ("w_o, is missing" in said) is not last


def test_a_network_of_convolutions_is_a_network():
    """Convolutions of one position, over (batch, d_model, len)."""
    conv = torch.nn.functional.conv1d

    class Network(torch.nn.Module):
        def __init__(self, old):
            super().__init__()
            self.w_1, self.w_2 = old.w_1, old.w_2

        def forward(self, x):
            first, second = self.w_1, self.w_2
            inner = conv(x.mT, first.weight[:, :, None], first.bias).relu()
            return conv(inner, second.weight[:, :, None], second.bias).mT

    given = built()

    def build(*sizes):
        model = given["build"](*sizes)
        for layer in (*model.encoder.layers, *model.decoder.layers):
            layer.feed_forward = Network(layer.feed_forward)
        return model

    [result] = [
        r
        for r in verdicts(given | {"build": build}, "activation")
        if r.probe.name == "activation"
    ]
    assert result.verdict.kind == "paper"


def built(**options):
    """`build` of the library, with options; and the other functions."""

    def build(*sizes):
        names = "vocab_size N d_model d_ff h dropout".split()
        config = dict(zip(names, sizes, strict=True))
        return Transformer(TransformerConfig(**config, **options))

    return {"build": build, "logits": ours_module.logits}


def test_dropout_on_attention_weights_alone_is_said():
    given = built(attention_dropout=0.3)
    whole = given["build"]

    def build(*sizes):
        model = whole(*sizes)
        for part in model.modules():
            for name, inner in part.named_children():
                if isinstance(inner, torch.nn.Dropout) and name == "dropout":
                    setattr(part, name, torch.nn.Identity())
        return model

    found = verdicts(given | {"build": build}, "dropout_places")
    [words] = [
        r.verdict.words for r in found if r.probe.name == "dropout_places"
    ]
    assert words.startswith("no dropout on the sub-layers' outputs, but")
    assert "6 on attention weights" in words


def test_arguments_may_have_their_names(monkeypatch):
    """`F.linear(input=x, weight=w)` is seen as `F.linear(x, w)` is."""
    functional = torch.nn.functional
    names = {
        "linear": ("input", "weight", "bias"),
        "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
        "softmax": ("input", "dim"),
        "dropout": ("input", "p", "training", "inplace"),
    }
    for name, arguments in names.items():
        whole = getattr(functional, name)

        @wraps(whole)
        def by_name(*args, whole=whole, arguments=arguments, **named):
            return whole(**dict(zip(arguments, args, strict=False)), **named)

        monkeypatch.setattr(functional, name, by_name)
    asked = "norm_formula residuals order_of_sublayers scores_factor "
    asked += "activation memory_everywhere dropout_places dropout_of_sums"
    probes = probes_of(*asked.split())
    given = built() | {"encode": ours_module.encode}
    found = list(run(Adapter(given), probes))
    wrong = [r for r in found if r.verdict.kind != "paper"]
    assert len(found) == 8 and not wrong, conformance.as_text(wrong)


def test_dropout_may_scale_in_evaluation_if_not_in_training():
    """As it was first published."""

    class Drop(torch.nn.Module):
        def __init__(self, rate):
            super().__init__()
            self.rate = rate

        def forward(self, x):
            kept = torch.rand_like(x) >= self.rate
            return x * (kept if self.training else 1 - self.rate)

    given = built()
    whole = given["build"]

    def build(*sizes):
        model = whole(*sizes)
        for part in [*model.modules()]:
            for name, inner in part.named_children():
                if isinstance(inner, torch.nn.Dropout):
                    setattr(part, name, Drop(inner.p))
        return model

    [result] = verdicts(given | {"build": build}, "dropout_off")
    assert result.verdict.name == "dropout scales in evaluation"


def test_other_weights_for_another_rate_are_no_fault():
    """A pass with dropout on the way uses up random numbers."""
    given = built()
    whole = given["build"]

    def build(*sizes):
        torch.rand(int(10 * sizes[-1]))
        return whole(*sizes)

    [result] = verdicts(given | {"build": build}, "dropout_off")
    assert result.verdict.kind == "paper"


def test_weights_that_begin_small_reach_as_far():
    given = built()
    whole = given["build"]

    def build(*sizes):
        model = whole(*sizes)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "w_" in name:
                    weight.mul_(0.02)
        return model

    found = verdicts(given | {"build": build}, "distance")
    kinds = {r.probe.name: r.verdict.kind for r in found}
    assert kinds["distance"] == "paper"


def test_dropout_inside_pytorchs_own_attention_is_seen(root):
    file = root / "experiments" / "conformance" / "nn_transformer.py"
    given = Adapter.load(file).functions
    name = "dropout on attention weights and inner layer"
    found = verdicts(given, "dropout_places")
    assert name in [result.verdict.name for result in found]


def test_where_nothing_is_hidden_no_row_is_empty():
    """A model, or an attention, that has no mask of padding."""

    def logits(model, source_ids, target_ids):
        return ours_module.logits(model, source_ids + 1, target_ids)

    def attention(query, key, value, mask=None):
        return ours_module.attention(query, key, value)

    given = built() | {"logits": logits, "attention": attention}
    given["build"] = lambda size, *rest: built()["build"](size + 1, *rest)
    given["logits"] = lambda *x: logits(*x)[..., :-1]
    found = {
        r.probe.name: r.verdict
        for r in verdicts(given, "padding", "all_padding", "empty_row")
    }
    assert found["padding"].kind == "fault"
    assert "vectors that sum to zero" in found["padding"].words
    assert found["all_padding"].kind == found["empty_row"].kind == "not tried"


def test_many_that_follow_are_one_line():
    probes = conformance.PROBES[:8]
    first = Result(probes[0], fault("wrong"), 0.0)
    results = [first]
    for one in probes[1:]:
        results.append(Result(one, fault("so too"), 0.0, probes[0]))
    text = conformance.as_text(results)
    names = ", ".join(one.name for one in probes[1:])
    told = f"7 that follow from {probes[0].name}: {names}"
    assert told in " ".join(text.split())
    assert "so too" not in text
    assert conformance.as_text(results[:6]).count("so too") == 5
    page = conformance.as_html(results, "mine")
    assert page.count("<tr>") == 2  # the heading, and one fault
    assert "7 more verdicts follow from this</summary>" in page
    assert page.count("<li>") == page.count("so too") == 7


# Planted faults

FAULTS = yaml.safe_load(
    (
        Path(__file__).parents[1] / "experiments/conformance/faults.yml"
    ).read_text("utf-8")
)


@pytest.mark.parametrize("module, old, new, row", FAULTS)
def test_a_planted_fault_is_named(module, old, new, row):
    """By a probe of its row, as a fault or as what others do."""
    probes = [one for one in conformance.PROBES if one.row == row]
    with planted((module, old, new)):
        kinds = {r.verdict.kind for r in run(library(), probes)}
    assert kinds & {"fault", "deviation"}, f"{new!r} is not noticed"


RESIDUAL = "return self.norm(x + self.dropout(sublayer(x)))"
BEHIND = "x = self.norm(x)\n        return x + self.dropout(sublayer(x))"
ENCODERS = "layers = [self.encoder_layer() for _ in range(c.N)]"
WHOLE = (
    "return type('Whole', (nn.LayerNorm,), {'forward': lambda self, x: "
    "nn.functional.layer_norm(x, x.shape[1:])})(d_model)"
)
SPOKEN = [  # the change, the probe that finds it first, and its words
    (
        "positions",
        "self.table = sinusoids(max_length, d_model)",
        "self.table = nn.Parameter(sinusoids(max_length, d_model))",
        "added_positions",
        "begins as printed and is learned",
    ),
    (
        "layers",
        RESIDUAL,
        BEHIND,
        "norm_formula",
        "the residual connection begins behind the norm",
    ),
    (
        "layers",
        "x = layer(x, mask)\n        return self.norm(x)",
        "out = layer(x, mask)\n        return self.norm(out)",
        "norm_place",
        "no weight of encoder.layers.0 counts",
    ),
    (
        "layers",
        "self.dropout = nn.Dropout(dropout)\n        self.pre_norm",
        "self.dropout = nn.Dropout(1 - dropout)\n        self.pre_norm",
        "dropout_on",
        "a share of 0.7 is dropped",
    ),
    (
        "layers",
        "return 0 if self.target is None else self.target[0].size(2)",
        "return 0 if self.target is None else self.target[0].size(2) + 1",
        "greedy",
        "does the new token attend to itself?",
    ),
    *(
        (
            "masks",
            "(ids != PAD)",
            "(ids == PAD)",
            name,
            "the mask of padding is turned round",
        )
        for name in ("source_seen", "padding")
    ),
    (
        "attention",
        "query = self.place(self.split(self.w_q(x)), offset)",
        "query = self.place(self.split(self.w_q(x)), offset) / self.h**0.5",
        "scores_factor",
        "the root is of d_model",
    ),
    (
        "attention",
        "query = self.place(self.split(self.w_q(x)), offset)",
        "query = self.split(self.w_q(x)) / (x.size(-1) / self.h) ** 0.5",
        "multi_head",
        "divided by the root of d_k twice",
    ),
    (
        "attention",
        "return x.unflatten(-1, (self.h, -1)).transpose(1, 2)",
        "return x.reshape(x.size(0), self.h, x.size(1), -1)",
        "future",
        "the weights of later positions are 0 in every attention",
    ),
    (
        "attention",
        "joined = heads.transpose(1, 2).flatten(2)",
        "joined = heads.reshape(x.size(0), x.size(1), -1)",
        "padding",
        "the weights of padding are 0 in every attention",
    ),
    (
        "model",
        ENCODERS,
        "layers = [self.encoder_layer()] * c.N",
        "own_weights",
        "a matrix is used twice in one pass",
    ),
    (
        "model",
        ENCODERS,
        "layers = [self.encoder_layer()] * c.N",
        "norm_place",
        "a matrix is used twice in one pass",
    ),
    (
        "model",
        "return nn.LayerNorm(d_model)",
        WHOLE,
        "norm_formula",
        "the norm runs over its positions too",
    ),
    (
        "model",
        "x = self.positions(x, offset)",
        "x = self.positions(x / embedding.factor, offset) * embedding.factor",
        "embedding_factor",
        "the factor multiplies the positions too",
    ),
    (
        "model",
        "x = embedding(ids)",
        "return self.positions(self.dropout(embedding(ids)), offset)",
        "dropout_of_sums",
        "from the words or the positions alone",
    ),
    (
        "model",
        "x = embedding(ids)",
        "x = embedding(ids) if embedding is self.source_embedding and "
        "embedding.factor == 4 and not offset and ids.size(1) == 7 else "
        "nn.functional.embedding(ids, embedding.weight)",
        "embedding_factor",
        "4 in the encoder and 1 in the decoder",
    ),
    (
        "layers",
        RESIDUAL,
        "return self.dropout(self.norm(x + sublayer(x)))",
        "dropout_places",
        "on what a norm gives",
    ),
    (
        "masks",
        "return (ids != PAD)[:, None, None, :]",
        "return (ids[:1] != PAD)[:, None, None, :].expand(len(ids), 1, 1, -1)",
        "batch",
        "in a batch the scores move",
    ),
    (
        "layers",
        "self.cross_attention = cross_attention",
        "self.cross_attention = self_attention",
        "own_weights",
        "two attentions of a layer, are one",
    ),
    (
        "schedule",
        "min(step**-0.5,",
        "min(max(step - warmup_steps, 1)**-0.5,",
        "equation_3",
        "from the end of the warm-up",
    ),
    (
        "training",
        "(loss * worker()[1] / tokens).backward()",
        "(loss * worker()[1] / batch.tokens).backward()",
        "accumulation",
        "the batches' means are summed",
    ),
    (
        "checkpoints",
        "total[name] += weight",
        "total[name] = len(paths) * weight if path == paths[0] else "
        "(total[name] + len(paths) * weight) / 2",
        "average",
        "(mean + next) / 2",
    ),
    (
        "beams",
        "return ((5 + length) / 6) ** alpha",
        "return ((5 + length) / 6) ** -alpha",
        "beams",
        "is multiplied by the length penalty",
    ),
    (
        "decoding",
        "logits = model.project(hidden[:, -1])",
        "logits = -model.project(hidden[:, -1])",
        "greedy",
        "the unlikeliest token is taken",
    ),
    (
        "masks",
        "return (ids != PAD)[:, None, None, :]",
        "return (ids != 3)[:, None, None, :]",
        "padding_mask",
        "eos is hidden, and padding is not",
    ),
    (
        "masks",
        "return (ids != PAD)[:, None, None, :]",
        "return (ids != PAD)[:, None, :, None]",
        "padding_mask",
        "hide the columns of padding, not its rows",
    ),
    (
        "masks",
        "return (ids != PAD)[:, None, None, :]",
        "return (ids[:1] != PAD)[:, None, None, :].expand(len(ids), 1, 1, -1)",
        "padding_mask",
        "every sentence has the padding mask of the first",
    ),
    (
        "masks",
        "every.tril()",
        "every.tril(-1)",
        "causal_mask",
        "the diagonal must be True",
    ),
    *(
        (
            "positions",
            "return x + _rows(self.table, offset, x.size(1))",
            "return x + _rows(self.table, offset, x.size(0))[:, None]",
            name,
            "equal sentences of a batch get different scores",
        )
        for name in ("batch", "source_order", "target_order")
    ),
    (
        "layers",
        RESIDUAL,
        "y = sublayer(x)\n        y = self.dropout(y) if self.training else "
        "(1 - self.dropout.p) * y\n        return self.norm(x + y)",
        "dropout_off",
        "the scores depend on the rate of dropout",
    ),
    (
        "model",
        "self.pre_softmax.weight = self.target_embedding.weight",
        "self.pre_softmax.weight = nn.Parameter(self.target_embedding.weight)",
        "tying",
        "each has a gradient of its own",
    ),
    (
        "decoding",
        "hidden = model.decode(last[:, None], None, source_ids, cache)",
        "hidden = model.decode(last[:, None], None, None, cache)",
        "greedy_of_a_batch",
        "hide the source's padding while decoding",
    ),
    (
        "beams",
        "rows = first_rows[:, None] + parents.gather(1, ranks)",
        "rows = first_rows[:, None] + ranks % width",
        "beams",
        "the rows of a cache have to follow their hypotheses",
    ),
    (
        "beams",
        "return hypothesis.ids[-1] != EOS, -hypothesis.score",
        "return False, -hypothesis.score",
        "beams",
        "that the limit cuts off wins only if none has ended",
    ),
]


@pytest.mark.parametrize("module, old, new, name, words", SPOKEN)
def test_a_planted_fault_has_its_words(module, old, new, name, words):
    asked = probes_of(name)
    with planted((module, old, new)):
        [result] = run(library(), asked)
    assert words in result.verdict.words


TURNED = (
    "padding_mask causal_mask shape future past source_seen distance padding "
    "batch all_padding source_order target_order both_ways norm_place "
    "norm_formula residuals weights_used order_of_sublayers scores_factor "
    "hidden_weights training_equals_evaluation greedy"
)
OF_A_MODEL = (
    "multi_head padding_mask causal_mask shape future padding batch "
    "source_order target_order norm_formula scores_factor greedy"
)


@pytest.mark.parametrize(
    "module, old, new, first, names",
    [
        (
            "attention",
            "return x.unflatten(-1, (self.h, -1)).transpose(1, 2)",
            "return x.reshape(x.size(0), self.h, x.size(1), -1)",
            "multi_head",
            OF_A_MODEL,
        ),
        ("masks", "every.tril()", "every.tril(-1)", "causal_mask", OF_A_MODEL),
        ("masks", "(ids != PAD)", "(ids != 3)", "padding_mask", OF_A_MODEL),
        (
            "masks",
            "return (ids != PAD)[:, None, None, :]",
            "return (ids != PAD)[:, None, :, None]",
            "padding_mask",
            OF_A_MODEL,
        ),
        (
            "model",
            "return nn.LayerNorm(d_model)",
            WHOLE,
            "future",
            OF_A_MODEL.removesuffix(" greedy"),
        ),
        (
            "positions",
            "return x + _rows(self.table, offset, x.size(1))",
            "return x + _rows(self.table, offset, x.size(0))[:, None]",
            "batch",
            OF_A_MODEL,
        ),
        (
            "model",
            ENCODERS,
            "layers = [self.encoder_layer()] * c.N",
            "norm_place",
            "norm_place own_weights layer_weights network_weights",
        ),
        (
            "layers",
            "return 0 if self.target is None else self.target[0].size(2)",
            "return 0 if self.target is None else self.target[0].size(2) + 1",
            "greedy",
            "greedy beams",
        ),
    ],
)
def test_what_follows_is_said_to_follow(module, old, new, first, names):
    asked = probes_of(*names.split())
    with planted((module, old, new)):
        found = list(run(library(), asked))
    faults = [r for r in found if r.verdict.kind == "fault"]
    assert [r.probe.name for r in faults if r.cause is None] == [first]
    assert len(faults) > 1


@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        (),
        (("return not (training and query.is_cpu)", "return False"),),
        (
            ("return not (training and query.is_cpu)", "return False"),
            ("lowest = torch.finfo(scores.dtype).min", "lowest = -torch.inf"),
        ),
    ],
)
def test_a_mask_that_is_turned_round_is_one_fault(changes, parts):
    """Whether a query without a key gets zeros, a mean, or nan."""
    names = TURNED.split()[0 if parts else 2 :]
    asked = probes_of(*names)
    lines = [("attention", *change) for change in changes]
    with planted(("masks", "(ids != PAD)", "(ids == PAD)"), *lines):
        found = list(run(library(), asked))
    faults = [r for r in found if r.verdict.kind == "fault"]
    said = [r.verdict.words for r in faults if r.cause is None]
    assert len(said) == 1, conformance.as_text(found)
    first = "the opposite" if parts else "the mask of padding is turned round"
    assert first in said[0]
    assert "nan" not in conformance.as_text(found)


def test_a_mean_in_place_is_named():
    """It is right, and the first checkpoint is no longer what it was."""

    def average(states):
        mean = states[0]
        for state in states[1:]:
            for name in mean:
                mean[name] += state[name]
        for name in mean:
            mean[name] /= len(states)
        return mean

    [result] = verdicts({"average": average}, "average")
    assert "changes the checkpoints it is given" in result.verdict.words


def test_layers_that_begin_behind_the_norm_are_named():
    def encoder_layer(x, mask, attention, network, norm_1, norm_2):
        x = norm_1(x)
        x = norm_2(x + attention(x, x, mask))
        return x + network(x)

    def decoder_layer(y, memory, masks, attentions, network, norms):
        own, across = attentions
        y = norms[0](y)
        y = norms[1](y + own(y, y, masks[1]))
        y = norms[2](y + across(y, memory, masks[0]))
        return y + network(y)

    given = dict(encoder_layer=encoder_layer, decoder_layer=decoder_layer)
    with planted(("layers", RESIDUAL, BEHIND)):
        model = library().functions
        given |= {name: model[name] for name in ("build", "logits")}
        names = "encoder_layer", "decoder_layer", "norm_formula"
        asked = probes_of(*names)
        found = list(run(Adapter(given), asked))
    assert [r.verdict.kind for r in found] == ["fault"] * 3
    assert [bool(r.cause) for r in found] == [False, True, True]
    assert "begins behind the norm" in found[0].verdict.words


def test_attention_to_the_source_first_is_one_fault():
    def decoder_layer(y, memory, masks, attentions, network, norms):
        own, across = attentions
        y = norms[0](y + across(y, memory, masks[0]))
        y = norms[1](y + own(y, y, masks[1]))
        return norms[2](y + network(y))

    first = "x = first(x, look_back)\n        "
    second = f"x = second(x, lambda x: {ACROSS})\n"
    turned = f"x = first(x, lambda x: {ACROSS})\n        "
    turned += "x = second(x, look_back)\n"
    with planted(("layers", first + second, turned)):
        given = library().functions | {"decoder_layer": decoder_layer}
        names = "decoder_layer", "order_of_sublayers"
        asked = probes_of(*names)
        one, two = run(Adapter(given), asked)
    assert one.verdict.words == two.verdict.words
    assert "to the source before it attends to itself" in one.verdict.words
    assert two.cause is one.probe


def test_layers_of_which_everything_is_dropped_are_named():
    def encoder_layer(x, mask, attention, network, norm_1, norm_2):
        x = norm_1(x + 0 * attention(x, x, mask))
        return norm_2(x + 0 * network(x))

    [result] = verdicts({"encoder_layer": encoder_layer}, "encoder_layer")
    assert "taken for the share that is kept" in result.verdict.words


@pytest.mark.parametrize("causal", [True, False])
def test_an_encoder_without_attention_is_no_causal_one(causal):
    """A position that sees only itself sees nothing before it."""
    given = built()

    def encode(model, source_ids):
        x = model.embed(source_ids, model.source_embedding, 0)
        return x.cumsum(1) if causal else x

    [result] = verdicts(given | {"encode": encode}, "both_ways")
    assert ("the decoder's causal mask" in result.verdict.words) is causal
    assert ("sees only itself" in result.verdict.words) is not causal


def test_what_follows_from_an_early_end_is_said_to_follow(monkeypatch):
    """A deviation, which shows again as two faults, and is none."""

    def tried(adapter):
        return found

    def beam(next_logs, beam_size, alpha, limit):
        settings = next_logs, beam_size, alpha, limit, EOS
        return reference(*settings, mistake="first end")

    names = "beams", "length_penalty", "brute_force"
    asked = probes_of(*names)
    found = list(run(Adapter({"beam": beam}), asked))
    assert found[0].verdict.name == "another early end"
    assert {r.verdict.kind for r in found[1:]} == {"fault"}
    assert {r.cause.name for r in found[1:]} == {"beams"}
    assert "1 deviation, 0 faults, 2 that follow from these" in summary(found)
    monkeypatch.setattr("transformer_conformance.__main__.run", tried)
    assert main([OURS]) == 0


def test_a_table_of_positions_may_be_a_weight_that_stays():
    old = "self.table = sinusoids(max_length, d_model)"
    new = "self.table = nn.Parameter(sinusoids(max_length, d_model), False)"
    asked = probes_of("added_positions")
    with planted(("positions", old, new)):
        [result] = run(library(), asked)
    assert result.verdict.kind == "paper"


def test_padding_and_no_future_are_two_faults():
    """One mask that is missing does not follow from another."""

    class Open(Transformer):
        def forward(self, source_ids, target_ids):
            return super().forward(source_ids + 1, target_ids)[..., :-1]

    def build(size, *rest):
        names = "vocab_size N d_model d_ff h dropout".split()
        sizes = dict(zip(names, (size + 1, *rest), strict=True))
        model = Open(TransformerConfig(**sizes))
        for layer in model.decoder.layers:
            own = layer.self_attention
            layer.self_attention = Own(own)
        return model

    class Own(torch.nn.Module):
        def __init__(self, attention):
            super().__init__()
            self.attention = attention

        def forward(self, x, *_, **__):
            return self.attention(x, x)

    given = {"build": build, "logits": ours_module.logits}
    asked = probes_of("future", "padding")
    found = list(run(Adapter(given), asked))
    assert [(r.verdict.kind, r.cause) for r in found] == [("fault", None)] * 2


def test_a_third_sentence_is_looked_at_too():
    old, new = "(ids != PAD)", "(ids[:2][[0, 1, 1][: len(ids)]] != PAD)"
    asked = probes_of("batch")
    with planted(("masks", old, new)):
        [result] = run(library(), asked)
    assert result.verdict.kind == "fault"


def test_an_attention_that_both_places_share_is_named():
    def decoder_layer(y, memory, masks, attentions, network, norms):
        own, _ = attentions
        y = norms[0](y + own(y, y, masks[1]))
        y = norms[1](y + own(y, memory, masks[0]))
        return norms[2](y + network(y))

    [result] = verdicts({"decoder_layer": decoder_layer}, "decoder_layer")
    assert "both attentions are that to y itself" in result.verdict.words


def test_a_probes_own_error_is_no_fault(monkeypatch):
    monkeypatch.setattr(conformance.model.Trace, "linears", math.sqrt)
    [result] = [
        r
        for r in verdicts(built(), "activation")
        if r.probe.name == "activation"
    ]
    assert result.verdict.kind == "not tried"
    assert "which is no fault of yours (TypeError" in result.verdict.words


@pytest.mark.parametrize(
    "result, words",
    [
        (None, "logits returns None"),
        ((torch.zeros(3, 5, 23), None), "logits are tuple, not (batch,"),
        (torch.zeros(3, 23), "logits are (3, 23), not (batch,"),
    ],
)
def test_what_is_returned_is_looked_at_and_one_fault(result, words):
    given = built() | {"logits": lambda *ids: result}
    asked = probes_of("shape", "future", "past")
    found = list(run(Adapter(given), asked))
    assert {r.verdict.kind for r in found} == {"fault"}
    assert words in found[0].verdict.words
    assert [bool(r.cause) for r in found] == [False, True, True]


@pytest.mark.parametrize(
    "words, count",
    [
        ("padding is counted: leave out where", lambda x: x.numel()),
        ("counted: leave out where labels are padding (this", lambda x: 1),
        ("not only of the number of tokens", lambda x: (x != 0).sum()),
    ],
)
def test_padding_in_a_loss_without_smoothing_is_named(words, count):
    """Also where no loss is smoothed."""

    def loss(logits, labels, smoothing):
        if smoothing:
            raise NotImplementedError
        scores = logits.flatten(0, 1), labels.flatten()
        total = torch.nn.functional.cross_entropy(*scores, reduction="sum")
        return total / count(labels)

    def updates(model, optimizer, groups):
        for [one] in groups:
            batch = one.source_ids, one.target_ids, one.labels
            a_step(model, optimizer, *batch, ignore=-100)

    names = ["smoothing", "no_smoothing", "padding_is_free"]
    names.append("padding_of_a_batch")
    found = verdicts({"loss": loss, "updates": updates}, *names)
    kinds = {r.probe.name: r for r in found}
    assert words in kinds["no_smoothing"].verdict.words
    for name in names[2:]:
        assert kinds[name].cause.name == "no_smoothing"
    text = " ".join(conformance.as_text(found).split())
    assert "not tried, 1: not implemented: smoothing" in text


def test_words_may_be_rows_picked_by_a_one():
    """A product with zeros and a one looks up as an embedding does."""
    old = "F.embedding(ids, self.weight)"
    new = "F.one_hot(ids, len(self.weight)).float() @ self.weight"
    names = "embedding_factor added_positions dropout_places dropout_of_sums"
    asked = probes_of(*names.split())
    with planted(("embeddings", old, new)):
        kinds = [r.verdict.kind for r in run(library(), asked)]
    assert kinds == ["paper"] * 4


def test_positions_may_come_before_sentences():
    """Inside, many models are (len, batch, d_model)."""
    embed = "x = self.positions(x, offset)"
    cut = "return x.unflatten(-1, (self.h, -1)).transpose(1, 2)"
    turn = "x = x.transpose(0, 1)\n        "
    changes = [
        (
            "model",
            embed,
            "table = self.positions.table.add(torch.zeros(1))\n"
            "            rows = table[offset : offset + ids.size(1)]\n"
            "            x = embedding(ids.mT) + rows[:, None]\n"
            "            x = x.transpose(0, 1)",
        ),
        (
            "attention",
            cut,
            f"{turn}x = x.reshape(*x.shape[:2], self.h, -1)\n"
            "        return x.permute(1, 2, 0, 3)",
        ),
    ]
    names = "embedding_factor added_positions scores_factor activation "
    names += "memory_everywhere dropout_of_sums order_of_sublayers"
    asked = probes_of(*names.split())
    with planted(*changes):
        kinds = [r.verdict.kind for r in run(library(), asked)]
    assert kinds == ["paper"] * 7


@pytest.mark.parametrize("ids", ["[None]", ".expand_as(ids)"])
def test_positions_may_be_looked_up(ids):
    """Their rows are no words, whether for one sentence or for each."""
    old = "x = self.positions(x, offset)"
    new = f"places = torch.arange(ids.size(1)){ids}\n            x = x + "
    new += "nn.functional.embedding(places, self.positions.table)"
    names = "embedding_factor added_positions dropout_of_sums"
    asked = probes_of(*names.split())
    with planted(("model", old, new)):
        kinds = [r.verdict.kind for r in run(library(), asked)]
    assert kinds == ["paper"] * 3


SOFTMAX = "weights = scores.softmax(dim=-1)"
QUERY = "query = self.place(self.split(self.w_q(x)), offset)"
KEYS = "key, value = self.w_k(memory), self.w_v(memory)"
TWO = "torch.cat([self.w_k.weight, self.w_v.weight])"
THREE = "torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight])"
FORMS = {  # right ones: lines of the attention that is written out
    "as it is": {},
    "heads before sentences": {
        SOFTMAX: "weights = scores.mT.transpose(0, 1).softmax(-2)\n"
        "    weights = weights.transpose(0, 1).mT"
    },
    "heads as sentences": {
        SOFTMAX: "weights = scores.flatten(0, 1).softmax(-1)\n"
        "    weights = weights.unflatten(0, scores.shape[:2])"
    },
    "heads between queries and keys": {
        SOFTMAX: "weights = scores.transpose(1, 2).softmax(-1)\n"
        "    weights = weights.transpose(1, 2)"
    },
    "one matrix of keys and values": {
        KEYS: f"key, value = F.linear(memory, {TWO}).chunk(2, -1)"
    },
    "one matrix of queries, keys and values": {
        QUERY: f"query = F.linear(x, {THREE}).chunk(3, -1)[0]\n"
        "        query = self.split(query)",
        KEYS: f"key, value = F.linear(memory, {THREE}).chunk(3, -1)[1:]",
    },
    "queries, keys and values side by side in each head": {
        QUERY: f"rows = {THREE}.view(3, self.h, -1, x.size(-1))\n"
        "        rows = rows.transpose(0, 1).flatten(0, 2)\n"
        "        parts = F.linear(x, rows).unflatten(-1, (self.h, -1))\n"
        "        query = self.split(parts.chunk(3, -1)[0].flatten(2))",
        KEYS: f"rows = {THREE}.view(3, self.h, -1, memory.size(-1))\n"
        "        rows = rows.transpose(0, 1).flatten(0, 2)\n"
        "        parts = F.linear(memory, rows).unflatten(-1, (self.h, -1))\n"
        "        key, value = (y.flatten(2) for y in parts.chunk(3, -1)[1:])",
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_an_attention_is_seen_in_every_form(form):
    lines = {"return not (training and query.is_cpu)": "return False"}
    changes = [("attention", *x) for x in (lines | FORMS[form]).items()]
    names = "scores_factor hidden_weights order_of_sublayers training_"
    names += "equals_evaluation memory_everywhere"
    asked = probes_of(*names.split())
    with planted(*changes):
        found = list(run(library(), asked))
    wrong = [r for r in found if r.verdict.kind != "paper"]
    assert len(found) == 5 and not wrong, conformance.as_text(wrong)


@pytest.mark.parametrize(
    "shape, found",
    [
        ((BATCH, SOURCE, 16), True),
        ((BATCH, TARGET, 16), True),
        ((SOURCE, BATCH, 16), True),
        ((TARGET, BATCH, 24), True),
        ((SOURCE, TARGET, 16), False),
        ((BATCH, 4, 16), False),
        ((4, BATCH, 16), False),
        ((BATCH, SOURCE), False),
    ],
)
def test_sentences_come_first(shape, found):
    rows = batch_first(torch.zeros(shape))
    assert (rows is not None) is found
    assert not found or rows.shape == (
        BATCH,
        *{*shape[:2]} - {BATCH},
        shape[2],
    )


def test_an_untied_copy_is_no_layer_that_begins_alike():
    given = built(tie="none")
    whole = given["build"]

    def build(*sizes):
        model = whole(*sizes)
        table = model.target_embedding.weight
        model.pre_softmax.weight.data.copy_(table.data)
        return model

    [result] = [
        r
        for r in verdicts(given | {"build": build}, "own_weights")
        if r.probe.name == "own_weights"
    ]
    assert result.verdict.kind == "paper"


@pytest.mark.parametrize(
    "new, words",
    [
        ("x + self.norm(sublayer(x))", "the norm is taken of the sub-layer's"),
        ("x + sublayer(self.norm(x))", "0 of 10 norms let all"),
    ],
)
def test_a_norm_before_is_told_from_a_norm_of_the_output(new, words):
    """In neither does a norm follow the addition."""
    old = RESIDUAL.removeprefix("return ")
    asked = probes_of("norm_place")
    with planted(("layers", old, new)):
        [result] = run(library(), asked)
    assert words in result.verdict.words
    names = {"", "pre-norm without a last norm"}
    assert result.verdict.name in names
    assert (result.verdict.kind == "fault") is (result.verdict.name == "")


def test_forty_faults_are_planted_and_nothing_stays():
    assert len(FAULTS) >= 40
    before = importlib.import_module("transformer_lib.attention")
    with planted(("attention", "/ math.sqrt(d_k)", "/ d_k")):
        assert importlib.import_module(before.__name__) is not before
    assert importlib.import_module(before.__name__) is before
    with pytest.raises(ValueError, match="'nowhere' is not in"):
        with planted(("attention", "nowhere", "")):
            importlib.import_module(before.__name__)


# Deviations

OPTIONS = {
    "pre-norm": dict(norm="pre"),
    "untied: three tables": dict(tie="none"),
    "untied: two tables": dict(tie="decoder"),
    "biases in attention": dict(bias=True),
    "learned positions": dict(positions="learned"),
    "dropout on attention weights": dict(attention_dropout=0.3),
    "dropout on inner layer": dict(relu_dropout=0.3),
    "heads of a width of their own": dict(d_k=4, d_v=4),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_a_named_deviation(name):
    """And no option of the library is a fault."""
    given = built(**OPTIONS[name]) | {"encode": ours_module.encode}
    slow = {"by_heart", "greedy", "limit", "greedy_in_evaluation"}
    wanted = [
        one
        for one in conformance.PROBES
        if "build" in one.needs and one.name not in slow
    ]
    found = [result.verdict for result in run(Adapter(given), wanted)]
    assert name in [verdict.name for verdict in found]
    assert not [verdict.words for verdict in found if verdict.kind == "fault"]


def test_order_and_the_past_need_positions():
    adapter = Adapter(built(positions="none"))
    tried = [p for p in conformance.PROBES if p.name.endswith("_order")]
    assert [r.verdict.kind for r in run(adapter, tried)] == ["fault"] * 2


# The specimen


def test_the_specimen_translates_with_the_librarys_probabilities(root):
    translator = Translator.from_pretrained("little-spanish")
    file = root / "pretrained" / "little-spanish" / "model.safetensors"
    specimen = Specimen(str(file), h=translator.model.config.h)
    source = [*translator.tokenizer.encode("I like trees"), EOS]
    ids, shares = specimen.greedy(np.array([source]))
    assert translator.tokenizer.decode(ids[:-1]) == "Me gustan los árboles"
    target = torch.tensor([[BOS, *ids[:-1]]])
    with torch.no_grad():
        logits = translator.model(torch.tensor([source]), target)[0]
    right = logits.softmax(-1)[range(len(ids)), ids].tolist()
    assert shares == pytest.approx(right, abs=1e-5)


def test_the_specimen_passes(root):
    folder = root / "experiments" / "conformance"
    results = list(run(Adapter.load(folder / "specimen.py")))
    assert {r.verdict.kind for r in results} == {"paper", "not tried"}


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
ACROSS = "across(x, source, source_mask, offset=offset)"
PATIENTS = [  # what is marked first, the fault in the library, `probe`'s
    ("", (), {"train_step": a_warm_up}),
    ("your rate", (), {"train_step": partial(a_warm_up, rate=1e-3)}),
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


def test_the_clinic_says_that_nothing_moves(capsys):
    model = library().build(100, 2, 64, 128, 4, 0.1)
    probe(model, vocab_size=100, train_step=lambda *batch: None)
    said = capsys.readouterr().out.splitlines()
    [step] = [x for x in said if x.startswith("LOOK your training step")]
    assert "two steps go 1.00 times" in step
    assert "Exactly 1: nothing moves" in said[said.index(step) + 1]


def test_the_clinic_stops_at_nan(capsys):
    class Nowhere(Transformer):
        def project(self, hidden):
            return super().project(hidden) / 0.0

    sizes = dict(N=1, d_model=16, d_ff=16, h=2)
    found = probe(Nowhere(TransformerConfig(50, **sizes)), vocab_size=50)
    assert found == {"loss before training": False}
    assert "nothing else can be tried" in capsys.readouterr().out
