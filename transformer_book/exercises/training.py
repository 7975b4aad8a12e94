"""The check of the chapter `training`."""

import torch

from transformer_book.exercises import exercise
from transformer_lib.batching import TokenBatches
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import adam, learning_rate


def _trained(loop, batches) -> torch.Tensor:
    """The weights of a small model after a loop has had it."""
    torch.manual_seed(1)
    sizes = dict(N=1, d_model=8, d_ff=8, h=2, dropout=0.0)
    model = Transformer(TransformerConfig.tiny(12, **sizes)).double()
    loop(model, batches, 8, 4)
    return torch.cat([x.detach().flatten() for x in model.parameters()])


def _loop(
    keep=False,
    late=False,
    again=False,
    shown=False,
    total=False,
    plain=False,
):
    """A training loop, right but for what the arguments say."""

    def loop(model, batches, steps, warmup_steps):
        width = model.config.d_model
        optimizer = adam(model)
        if plain:
            optimizer = torch.optim.Adam(model.parameters())
        for step in range(1, steps + 1):
            epoch, place = divmod(step - 1, len(batches))
            batch = next(batches.epoch(0 if again else epoch, place))
            ids = batch.labels if shown else batch.target_ids
            logits = model(batch.source_ids, ids)
            loss = smoothed_loss(logits, batch.labels)
            loss = loss if total else loss / batch.tokens
            if not keep:
                optimizer.zero_grad()
            loss.backward()
            rate = learning_rate(max(step - late, 1), width, warmup_steps)
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()

    return loop


_MISTAKES = {
    "nothing was learnt: set the rate, call step()": lambda *_: None,
    "gradients add up: call zero_grad() in each step": _loop(keep=True),
    "the rate comes a step late: count from 1": _loop(late=True),
    "the first epoch comes again: epoch(0), epoch(1)": _loop(again=True),
    "the loss is a sum: divide it by `batch.tokens`": _loop(total=True),
    "these are PyTorch's settings of Adam: take `adam(model)`": _loop(
        plain=True
    ),
    "the decoder sees the labels: give it target_ids": _loop(shown=True),
}


@exercise("training.loop")
def loop(answer):
    """Train a model for so many steps, as section 5 says."""
    dice = torch.Generator().manual_seed(0)
    sides = torch.randint(4, 12, (14, 2, 4), generator=dice).tolist()
    pairs = [([*a, 3], [*b[: 3 + i % 2], 3]) for i, (a, b) in enumerate(sides)]
    batches = TokenBatches(pairs, tokens_per_batch=15)
    found = _trained(answer, batches)
    for message, mistaken in _MISTAKES.items():
        same = torch.allclose(found, _trained(mistaken, batches), atol=1e-7)
        assert not same, message
    right = torch.allclose(found, _trained(_loop(), batches), atol=1e-7)
    assert right, "the weights differ from those of the paper's steps"
