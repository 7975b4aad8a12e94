"""The check of the chapter `training`."""

import torch

from transformer_book.exercises import exercise
from transformer_lib.batching import TokenBatches
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig


def _moved(update, groups) -> torch.Tensor:
    """The weights of a small model after an update for each group."""
    torch.manual_seed(1)
    sizes = dict(N=1, d_model=8, d_ff=8, h=2, dropout=0.0)
    model = Transformer(TransformerConfig.tiny(12, **sizes)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for group in groups:
        update(model, optimizer, group)
    return torch.cat([x.detach().flatten() for x in model.parameters()])


def _update(
    keep=False, last=False, often=False, total=False, means=False, first=False
):
    """An update, right but for what the arguments say."""

    def update(model, optimizer, group):
        tokens = sum(batch.tokens for batch in group)
        if not keep:
            optimizer.zero_grad()
        for batch in group[:1] if first else group:
            if last:
                optimizer.zero_grad()
            logits = model(batch.source_ids, batch.target_ids)
            loss = smoothed_loss(logits, batch.labels)
            if means:
                loss = loss / batch.tokens / len(group)
            elif not total:
                loss = loss / tokens
            loss.backward()
            if often:
                optimizer.step()
        if not often:
            optimizer.step()

    return update


_MISTAKES = {
    "nothing moved: call backward() and step()": lambda *_: None,
    "old gradients are still there: call zero_grad()": _update(keep=True),
    "only the last batch counts: clear the gradients once": _update(last=True),
    "only the first batch counts: go through all of them": _update(first=True),
    "there is a step for each batch: call step() once": _update(often=True),
    "the loss is a sum: divide it by the tokens": _update(total=True),
    "this is a mean of means: divide by the tokens of all": _update(
        means=True
    ),
}


@exercise("training.update")
def update(answer):
    """One step of the weights from the gradients of several batches."""
    chance = torch.Generator().manual_seed(0)
    sides = torch.randint(4, 12, (14, 2, 4), generator=chance).tolist()
    pairs = [([*a, 3], [*b[: 1 + i % 4], 3]) for i, (a, b) in enumerate(sides)]
    batches = list(TokenBatches(pairs, tokens_per_batch=15).epoch(0))
    groups = batches[:3], batches[3:5]
    found = _moved(answer, groups)
    for message, mistaken in _MISTAKES.items():
        same = torch.allclose(found, _moved(mistaken, groups), atol=1e-9)
        assert not same, message
    right = torch.allclose(found, _moved(_update(), groups), atol=1e-9)
    assert right, "the weights differ from those of one step for all batches"
