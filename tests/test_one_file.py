"""The paper in one file computes what the library computes."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import transformer as paper
from transformer_book.records import load_counts
from transformer_lib import Transformer, TransformerConfig, smoothed_loss

ROOT = Path(__file__).parent.parent
SOURCE, TARGET, LABELS = [5, 9, 7, 6, 3], [2, 6, 4, 11], [6, 4, 11, 3]


def same_weights():
    """A model of the file, one of the library, and pairs of weights.

    A pair is the file's matrix and a function that gives, of a tensor
    like the library's, what belongs there: it has several heads in one.
    """
    random.seed(1)
    vocab_size, N, d_model, d_ff, h = 30, 2, 16, 24, 4
    ours = paper.Transformer(vocab_size, N, d_model, d_ff, h)
    for weight in ours.weights:  # gains and biases, too
        for row in weight.rows:
            row[:] = [value + random.gauss(0, 0.1) for value in row]
    config = TransformerConfig(
        vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=0.0
    )
    theirs = Transformer(config).double()
    pairs = [(ours.table, theirs.target_embedding.weight, lambda w: w)]
    stacks = (ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)
    for own_layers, stack in stacks:
        for own, layer in zip(own_layers, stack.layers, strict=True):
            kinds = "self_attention", "cross_attention"
            for kind, heads, w_o in zip(
                kinds, own["heads"], own["W_O"], strict=False
            ):
                part = getattr(layer, kind)
                for i, head in enumerate(heads):
                    for matrix, name in zip(
                        head, ("w_q", "w_k", "w_v"), strict=True
                    ):
                        pairs.append(
                            (
                                matrix,
                                getattr(part, name).weight,
                                lambda w, i=i: w.chunk(h)[i].T,
                            )
                        )
                pairs.append((w_o, part.w_o.weight, lambda w: w.T))
            network = layer.feed_forward
            pairs += [
                (own["W_1"], network.w_1.weight, lambda w: w.T),
                (own["b_1"], network.w_1.bias, lambda w: w[None]),
                (own["W_2"], network.w_2.weight, lambda w: w.T),
                (own["b_2"], network.w_2.bias, lambda w: w[None]),
            ]
            for (gain, bias), residual in zip(
                own["norms"], layer.residuals, strict=True
            ):
                norm = residual.norm
                pairs.append((gain, norm.weight, lambda w: w[None]))
                pairs.append((bias, norm.bias, lambda w: w[None]))
    assert len(pairs) == len(ours.weights)
    with torch.no_grad():
        for matrix, weight, place in pairs:
            place(weight).copy_(tensor(matrix.rows))
    return ours, theirs, pairs


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False])
def test_scores_and_gradients_are_the_library_s(training):
    ours, theirs, pairs = same_weights()
    theirs.train(training)
    logits = ours.decode(TARGET, ours.encode(SOURCE))
    loss = paper.smoothed_loss(logits, LABELS)
    paper.backward(loss)

    wanted = theirs(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    same = {"atol": 1e-9, "rtol": 0}
    torch.testing.assert_close(tensor(logits.rows), wanted[0], **same)
    total = smoothed_loss(wanted, torch.tensor([LABELS])) / len(LABELS)
    torch.testing.assert_close(loss.rows[0][0], total.item(), **same)
    total.backward()
    for matrix, weight, place in pairs:
        torch.testing.assert_close(
            tensor(matrix.grad), place(weight.grad), **same
        )


def test_it_writes_what_the_library_writes():
    ours, theirs, _ = same_weights()
    memory = theirs.encode(torch.tensor([SOURCE]))
    ids = [2]
    while ids[-1] != 3 and len(ids) < 9:
        hidden = theirs.decode(torch.tensor([ids]), memory, None)
        ids.append(theirs.project(hidden[0, -1]).argmax().item())
    paper_ids = paper.BOS, paper.EOS
    paper.BOS, paper.EOS = 2, 3
    try:
        assert paper.translate(ours, SOURCE, max_extra=4) == ids[1:]
    finally:
        paper.BOS, paper.EOS = paper_ids


def test_no_sentence_is_there_twice_and_the_grammar_agrees():
    pairs = dict((" ".join(a), " ".join(b)) for a, b in paper.sentences())
    assert len(pairs) == len(paper.sentences()) == 576
    assert pairs["I like the trees"] == "me gustan los árboles"
    assert pairs["the old tree is small"] == "el árbol viejo es pequeño"
    assert pairs["the red houses are old"] == "las casas rojas son viejas"
    assert pairs["you see the flower"] == "ves la flor"


def test_it_needs_nothing_but_python_and_learns_as_recorded():
    """Isolated: no packages, no environment. The record is of this file."""
    code = "import transformer; transformer.main(steps=10)"
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in ran.stdout.splitlines()]
    losses = {int(x[1]): float(x[3]) for x in lines if x[0] == "step"}
    first, *_ = load_counts("one_file")["edits"]["as it is"]["runs"]
    assert losses == {step: loss for step, loss, _ in first["steps"][:2]}


def test_a_port_finds_weights_and_what_they_give(capsys):
    """Every gradient is there, and the weights are those of torch's Adam."""
    paper.numbers()
    found = json.loads(capsys.readouterr().out)

    def flat(part):
        if isinstance(part, float):
            return [part]
        values = part.values() if isinstance(part, dict) else part
        return [number for value in values for number in flat(value)]

    weights = tensor(flat(found["weights"])).requires_grad_()
    adam = torch.optim.Adam([weights], found["rate"], (0.9, 0.98), 1e-9)
    assert found["steps"][1]["loss"] < found["steps"][0]["loss"]
    for step in found["steps"]:
        weights.grad = tensor(flat(step["gradients"]))
        assert (weights.grad != 0).float().mean() > 0.8
        adam.step()
        after = tensor(flat(step["weights after"]))
        torch.testing.assert_close(weights.detach(), after)
