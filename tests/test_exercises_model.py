"""Right and wrong answers to the exercises of `model`."""

from dataclasses import replace

import pytest

from transformer_book.exercises import check
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    parameter_count,
)


def attention_share(config):
    count = parameter_count(config)
    total = count["total"]
    return (
        sum(n for k, n in count.items() if "attention" in k) / total
    )


def one_stack(config):
    count = parameter_count(config)
    return count["encoder feed-forward"] / count["total"]


@pytest.mark.parametrize("wrong", [attention_share, one_stack])
def test_share(wrong, capsys):
    assert not check("model.share", wrong)
    assert "both stacks" in capsys.readouterr().out


def still_shared(model):
    free = Transformer(replace(model.config, tie="none"))
    free.load_state_dict(model.state_dict())
    free.source_embedding.weight = model.source_embedding.weight
    return free


def fresh(model):
    return Transformer(replace(model.config, tie="none"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda model: model, "1 matrices"),
        (still_shared, "shared"),
        (fresh, "other logits"),
    ],
)
def test_untie(wrong, words, capsys):
    assert not check("model.untie", wrong)
    assert words in capsys.readouterr().out.lower()


def untie(model):
    free = Transformer(replace(model.config, tie="none"))
    free.load_state_dict(model.state_dict())
    return free


def test_untie_right():
    assert check("model.untie", untie)


def test_budget(capsys):
    assert not check(
        "model.budget", lambda N: TransformerConfig.tiny(500, N=N)
    )
    assert "off the budget" in capsys.readouterr().out
