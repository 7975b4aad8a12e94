"""A training step of each contestant."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from models import as_marian, as_torch, random_model
from torch import Tensor, nn
from transformers import MarianMTModel

from transformer_lib.batching import Batch
from transformer_lib.embeddings import PAD
from transformer_lib.loss import model_losses
from transformer_lib.masks import causal_mask
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import adam

ADAM = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-9, "fused": True}
Step = Callable[[], object]


def our_forward(ours: Transformer, batch: Batch) -> Tensor:
    """Logits."""
    return ours(batch.source_ids, batch.target_ids)


def torch_forward(
    ours: Transformer, theirs: nn.Transformer, batch: Batch
) -> Tensor:
    """Logits; embeddings, positions and projection are borrowed."""
    pad = batch.source_ids == PAD
    length = batch.target_ids.size(1)
    hidden = theirs(
        ours.embed(batch.source_ids, ours.source_embedding),
        ours.embed(batch.target_ids, ours.target_embedding),
        tgt_mask=~causal_mask(length, pad.device)[0, 0],
        tgt_is_causal=True,
        src_key_padding_mask=pad,
        memory_key_padding_mask=pad,
    )
    return ours.project(hidden)


def marian_forward(theirs: MarianMTModel, batch: Batch) -> Tensor:
    """Logits."""
    return theirs(
        input_ids=batch.source_ids,
        attention_mask=(batch.source_ids != PAD).long(),
        decoder_input_ids=batch.target_ids,
        use_cache=False,
    ).logits


def smoothed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """As most people write it."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        label_smoothing=0.1,
        ignore_index=PAD,
    )


def peer_step(
    weights: list[Tensor],
    forward: Callable[[Batch], Tensor],
    batch: Batch,
    bf16: bool = False,
) -> Step:
    """A training step in the usual way, with the fused Adam."""
    optimizer = torch.optim.Adam(weights, **ADAM)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = smoothed_cross_entropy(forward(batch), batch.labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def our_step(model: Transformer, batch: Batch, bf16: bool = False) -> Step:
    """One step of the book's training loop."""
    optimizer = adam(model)
    optimizer.param_groups[0]["lr"] = ADAM["lr"]

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            hidden = model.hidden(batch.source_ids, batch.target_ids)
            loss, nll = model_losses(model, hidden, batch.labels)
        (loss / batch.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        return nll.item()

    return step


def training_steps(
    config: TransformerConfig, batch: Batch, bf16: bool = False
) -> dict[str, Step]:
    """A training step of each; in `bf16`, Hugging Face's both ways."""
    steps, losses = {}, {}
    names = ["ours", "nn.Transformer", "HF eager", "HF sdpa"]
    if bf16:
        names.remove("nn.Transformer")
    for name in names:
        ours = random_model(config)
        if name == "ours":
            losses[name] = _loss(partial(our_forward, ours), [ours], batch)
            steps[name] = our_step(ours, batch, bf16)
            continue
        if name == "nn.Transformer":
            theirs = as_torch(ours)
            forward = partial(torch_forward, ours, theirs)
            weights = [*theirs.parameters(), ours.output_weight]
        else:
            theirs = as_marian(ours, name.removeprefix("HF "))
            forward = partial(marian_forward, theirs)
            weights = list(theirs.parameters())
        losses[name] = _loss(forward, [theirs, ours], batch)
        steps[name] = peer_step(weights, forward, batch)
        if bf16:
            half = peer_step(weights, forward, batch, bf16=True)
            steps[f"{name} bf16"] = half
    first = next(iter(losses.values()))
    same = all(abs(loss / first - 1) < 1e-4 for loss in losses.values())
    assert same, f"these are not one model: {losses}"
    return steps


@torch.no_grad()
def _loss(forward: Callable, modules: list[nn.Module], batch: Batch) -> float:
    """The loss without dropout, to see that all are one model."""
    for module in modules:
        module.eval()
    loss = smoothed_cross_entropy(forward(batch), batch.labels)
    for module in modules:
        module.train()
    return loss.item()
