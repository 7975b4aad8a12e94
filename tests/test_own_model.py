"""Models with parts of one's own: trained, saved, loaded, translated with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from own_models import GELU, KINDS, Rotary, WithGELU
from since import RotaryAttention
from torch import nn

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_model,
    probe,
    save_model,
)
from transformer_lib.cli import main
from transformer_lib.experiment import Experiment, run_experiment
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
)
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

CONFIG = TransformerConfig(
    30, N=2, d_model=16, d_ff=32, h=4, dropout=0.0, positions="none"
)
PAIRS = [([i, i + 1, 3], [i + 1, i, i, 3]) for i in range(4, 28)]
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12], [2, 9, 7, 0]])


each_kind = pytest.mark.parametrize("kind", KINDS)


def built(kind):
    torch.manual_seed(0)
    return kind(CONFIG)


class OwnHidden(Transformer):
    def hidden(self, source_ids, target_ids):
        return super().hidden(source_ids, target_ids) * 2


class FirstPlace(RotaryAttention):
    def place(self, heads, offset):
        return super().place(heads, 0)


class WithoutOffset(Transformer):
    def self_attention(self):
        return FirstPlace(self.config.d_model, self.config.h)


@pytest.mark.parametrize("kind", [OwnHidden, WithoutOffset])
def test_what_a_search_would_pass_by_is_refused(kind, tmp_path):
    """It goes through encode, project, and decode with a cache."""
    model, batches = built(kind), TokenBatches(PAIRS, 60)
    for use in (
        lambda: save_model(tmp_path / "model", model),
        lambda: train(model, batches, TrainingConfig()),
    ):
        with pytest.raises(ValueError, match="encode, decode and project"):
            use()
    assert not [*tmp_path.iterdir()]


@each_kind
def test_it_trains_is_averaged_saved_and_loaded(kind, tmp_path):
    model = built(kind)
    batches = TokenBatches(PAIRS, 60)
    config = TrainingConfig(max_steps=4, checkpoint_every=2, warmup_steps=2)
    train(model, batches, config, folder=tmp_path)
    model.load_state_dict(average_checkpoints(checkpoint_files(tmp_path)))
    model.eval()
    save_model(tmp_path, model)
    read = load_model(tmp_path, kind).model
    assert torch.equal(read(SOURCE, TARGET), model(SOURCE, TARGET))
    assert type(read) is kind


def test_a_run_goes_on_with_its_own_parts_alone(tmp_path):
    """Of one class, with weights that fit, and another function inside."""
    batches, other = TokenBatches(PAIRS, 60), built(Transformer)
    other.encoder.layers[0].feed_forward = GELU(16, 32)
    others = "this model computes other scores"
    for model, folder in (built(Transformer), "ours"), (other, "other"):
        config = TrainingConfig(max_steps=1)
        train(model, batches, config, folder=tmp_path / folder)
    more = TrainingConfig(max_steps=2)
    with pytest.raises(ValueError, match=others):
        train(other, batches, more, folder=tmp_path / "ours")
    with pytest.raises(ValueError, match=others):
        train(built(Transformer), batches, more, folder=tmp_path / "other")
    train(other, batches, more, folder=tmp_path / "other")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_run_goes_on_in_another_dtype(tmp_path, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for steps in 1, 2:
            config = TrainingConfig(max_steps=steps)
            batches = TokenBatches(PAIRS, np.int64(60) if steps < 2 else 60)
            history = train(
                built(Transformer), batches, config, folder=tmp_path
            )
    finally:
        torch.set_default_dtype(before)
    assert history.lines[-1]["step"] == 2


def test_the_command_line_averages_no_other_kind(tmp_path, capsys):
    """Its weights fit ours, and would make a wrong model of ours."""
    run, out = tmp_path / "run", tmp_path / "mean"
    model = built(WithGELU)
    save_model(run, model)
    config = TrainingConfig(max_steps=1)
    train(model, TokenBatches(PAIRS, 60), config, folder=run)
    words = ["average", "--model", str(run), "--out", str(out)]
    assert main(words) == 2 and not out.exists()
    assert "of the class WithGELU, not" in capsys.readouterr().err


def test_a_recorded_experiment_with_ones_own(tmp_path):
    """It goes on as what it is, and not as ours."""
    experiment = Experiment(
        model=replace(CONFIG, vocab_size=300),
        training=TrainingConfig(max_steps=3, checkpoint_every=1),
        tokens_per_batch=512,
        limit=20,
        average=2,
        test="test",
        device="cpu",
    )
    report = run_experiment(experiment, tmp_path, model=Rotary)
    assert report["result"]["steps"] == 3
    assert report["test"]["sentences"] == 20
    assert type(load_model(tmp_path, Rotary).model) is Rotary
    (tmp_path / "report.json").unlink()
    with pytest.raises(ValueError, match="class was Rotary, is Tr"):
        run_experiment(experiment, tmp_path)
    again = run_experiment(experiment, tmp_path, model=Rotary)
    assert again["test"]["bleu"] == report["test"]["bleu"]


def test_a_class_without_a_cache_is_known_by_its_scores():
    """Searches need one; training and saving don't."""

    class Uncached(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.inner = config, Transformer(config)
            self.encode, self.project = self.inner.encode, self.inner.project

        def decode(self, target_ids, memory, source_ids):
            return self.inner.decode(target_ids, memory, source_ids)

        def forward(self, source_ids, target_ids):
            return self.inner(source_ids, target_ids)

    model = Uncached(TransformerConfig.tiny(20))
    assert probe(model).shape == (2, 8, 20)
    model.decode = lambda ids, memory, source_ids: model.inner.decode(
        ids, -memory, source_ids
    )
    with pytest.raises(ValueError, match="other scores"):
        probe(model)
