"""The check of the chapter `training`."""

import torch

from transformer_book.exercises import exercise
from transformer_lib.batching import TokenBatches
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import adam, learning_rate


def _trained(loop, batches) -> torch.Tensor:
    """All weights of a small model after a loop has had it."""
    torch.manual_seed(1)
    sizes = dict(N=1, d_model=8, d_ff=8, h=2, dropout=0.0)
    model = Transformer(TransformerConfig.tiny(12, **sizes)).double()
    loop(model, batches, 5, 4)
    return torch.cat(
        [weight.flatten() for weight in model.parameters()]
    )


def _loop(keep=False, first=1, again=False, shown=False, share=0.1):
    """A training loop, right but for what the arguments say."""

    def loop(model, batches, steps, warmup_steps):
        optimizer, width = adam(model), model.config.d_model
        for step in range(steps):
            epoch, place = divmod(step, len(batches))
            batch = next(batches.epoch(0 if again else epoch, place))
            ids = batch.labels if shown else batch.target_ids
            logits = model(batch.source_ids, ids)
            loss = smoothed_loss(logits, batch.labels, share)
            if not keep:
                optimizer.zero_grad()
            (loss / batch.tokens).backward()
            rate = learning_rate(
                max(step + first, 1), width, warmup_steps
            )
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()

    return loop


_MISTAKES = {
    "every backward adds to the gradients of the steps before: call "
    "optimizer.zero_grad() in each step": _loop(keep=True),
    "the rate is one step late: steps count from 1": _loop(first=0),
    "every epoch repeats the first one's batches: ask for "
    "batches.epoch(0), then batches.epoch(1)": _loop(again=True),
    "the decoder was shown the labels that it is asked for: give it "
    "batch.target_ids": _loop(shown=True),
    "the loss is not the smoothed one: smoothed_loss with its own "
    "label_smoothing=0.1": _loop(share=0.0),
}


@exercise("training.loop")
def loop(answer):
    """Train a model for so many steps, as section 5 says."""
    dice = torch.Generator().manual_seed(0)
    sides = torch.randint(4, 12, (6, 2, 4), generator=dice).tolist()
    pairs = [
        ([*a, 3], [*b[: 2 + i % 3], 3])
        for i, (a, b) in enumerate(sides)
    ]
    batches = TokenBatches(pairs, tokens_per_batch=10)
    found = _trained(answer, batches)

    def like(loop):
        return torch.allclose(
            found, _trained(loop, batches), atol=1e-7
        )

    untrained = like(lambda model, batches, steps, warmup_steps: None)
    assert not untrained, (
        "the weights are as they were: a step ends in optimizer.step(), "
        "and its rate is 0 until param_groups[0]['lr'] is set"
    )
    for message, mistaken in _MISTAKES.items():
        assert not like(mistaken), message
    assert like(_loop()), (
        "the weights differ from those of five steps"
    )
