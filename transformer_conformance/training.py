"""Probes of section 5: the shift, the loss, the rate, a step."""

import copy
import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, log_softmax

from .core import (
    Adapter,
    Verdict,
    Wrong,
    close,
    deviation,
    fault,
    not_tried,
    paper,
    probe,
)
from .plain import judge_rate


@probe("layers-shifted-targets", "batching-batch", "shift")
def shift(tried: Adapter) -> Verdict:
    """The decoder reads the target shifted by one position, behind a
    begin symbol; the labels are the target with its end symbol."""
    words = tried.words(3, 6, size=20).tolist()
    targets = [
        [*row[:count], tried.EOS]
        for row, count in zip(words, (6, 3, 5), strict=True)
    ]
    inputs, labels = (torch.as_tensor(x) for x in tried.shift(targets))
    kept = []  # the rows whose input has an eos, where the label is padding
    if inputs.shape != labels.shape:
        return fault(
            f"inputs {tuple(inputs.shape)} and labels {tuple(labels.shape)} "
            "differ in shape: each position has one label"
        )
    for row, target in enumerate(targets):
        reads = [x for x in inputs[row].tolist() if x != tried.PAD]
        wants = [x for x in labels[row].tolist() if x != tried.PAD]
        count = len(target)
        if wants == reads:
            return fault(
                "labels and inputs are the same: shift one of them, or the "
                "model learns to copy what it reads"
            )
        if wants == target[:-1]:
            return fault(
                f"row {row}: no end symbol in the labels, so translations "
                "never end"
            )
        if wants != target:
            return fault(f"row {row}: labels {wants} for the target {target}")
        if reads == target[:-1]:
            return fault("the decoder's input does not begin with bos")
        if reads == [tried.BOS, *target]:
            kept.append(row)
            reads = reads[:-1]
        if reads[1:] == target[:-1] and reads[0] != tried.BOS:
            return deviation(
                "another begin symbol",
                f"the input begins with {reads[0]}",
                "fairseq and Marian",
            )
        if reads != [tried.BOS, *target[:-1]]:
            return fault(f"row {row}: inputs {reads} for the target {target}")
        if (labels[row, :count] == tried.PAD).any():
            return fault("the labels are padded on the left")
        if inputs[row, :count].tolist() != reads:
            return fault(f"row {row}: the input is not padded on the right")
    if kept:
        rows = " and ".join(str(row) for row in kept)
        return deviation(
            "eos in the input of a padded row",
            f"row{'s' * (len(kept) > 1)} {rows}: the label there is padding, "
            "and nothing earlier sees it",
            "code that cuts off the last column of a padded batch",
        )
    return paper("inputs bos y1 y2, labels y1 y2 eos, padded alike")


def _loss_example(tried: Adapter) -> tuple[Tensor, Tensor]:
    """Logits of 11 tokens, labels with some padding at the ends; every
    ordinary token is a label."""
    logits = 3 * torch.randn(3, 5, 11)
    labels = tried.ended(tried.words(3, 5, size=11), 4, 3, 5)
    chosen = torch.tensor(tried.ordinary(11))
    is_word = (labels != tried.PAD) & (labels != tried.EOS)
    count = int(is_word.sum())  # nine, as many as there can be
    order = torch.cat([torch.randperm(len(chosen)), torch.arange(count)])
    labels[is_word] = chosen[order[:count]]
    return logits, labels


def _cross(tried: Adapter, logits, labels, share=0.0, **how) -> float:
    how.setdefault("ignore_index", tried.PAD)
    return cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=share, **how
    ).item()


def _loss(tried: Adapter, logits: Tensor, labels: Tensor) -> Tensor:
    """The adapter's loss, smoothed if it smooths at all."""
    try:
        return torch.as_tensor(tried.loss(logits, labels, 0.1))
    except NotImplementedError:
        return torch.as_tensor(tried.loss(logits, labels, 0.0))


def _entropy(share: float, count: int) -> float:
    """Of a target with 1 - share on one token, the rest on `count`."""
    part = share / count
    return -(1 - share) * math.log(1 - share) - share * math.log(part)


OVER_PADDING = "a mean over padding too"


@probe("loss-smoothing", "loss-smoothed", "loss")
def smoothing(tried: Adapter) -> Verdict:
    """Labels are smoothed by 0.1: a share of the target is spread evenly
    over the vocabulary."""
    logits, labels = _loss_example(tried)
    share, size = 0.2, logits.size(-1)
    got = torch.as_tensor(tried.loss(logits, labels, share)).double()
    if got.shape != ():
        return fault(
            f"the loss is one number, yours has shape {tuple(got.shape)}"
        )
    real = labels != tried.PAD
    logs = log_softmax(logits, -1)[real]
    right = logs.gather(1, labels[real][:, None])[:, 0]
    spread = logs.mean(1)

    def per_token(kept: float, shared: float) -> float:
        """`kept` for the right token, and the mean times `shared`."""
        return -(kept * right + shared * spread).mean().item()

    wanted = per_token(1 - share, share)
    if close(got, wanted):
        return paper(f"{got:.4f} nats per token with a share of {share}")
    wrong = logs.sum(1) - right

    def over(tokens: Tensor, number: int) -> float:
        """The share goes to so many other tokens, whose sum is given."""
        return -((1 - share) * right + share * tokens / number).mean().item()

    off_1, off_2 = (
        over(wrong, size - 1),
        over(wrong - logs[:, tried.PAD], size - 2),
    )
    known = {
        "smoothing over V - 1": (
            [off_1, off_1 - _entropy(share, size - 1)],
            "tensor2tensor, OpenNMT-py",
        ),
        "smoothing over V - 2": (
            [off_2, off_2 - _entropy(share, size - 2)],
            "the Annotated Transformer",
        ),
        "no smoothing": (
            [per_token(1, 0)],
            "much code with PyTorch's CrossEntropyLoss",
        ),
    }
    measured = f"{got:.4f} nats, where the paper's is {wanted:.4f} per token"
    count = real.sum().item()
    padded = count / labels.numel()
    for name, (values, who) in known.items():
        # a mean, a sum, or a mean over the padding's positions, too
        if any(close(got, x * y) for x in (1, count, padded) for y in values):
            said = "; the share goes only to the wrong tokens"
            if name == "no smoothing":
                said = f"; a share of {share} was asked for, and nothing is "
                said += "smoothed"
            return deviation(name, measured + said, who)
    # a divergence is the loss less the entropy of its target
    floor = _entropy(share * (size - 1) / size, size - 1)
    if any(close(got, x * (wanted - floor)) for x in (1, count, padded)):
        return deviation("a divergence", measured, "PyTorch's KLDivLoss")
    if close(got, padded * wanted):
        return deviation(OVER_PADDING, measured, "PyTorch's KLDivLoss")
    rows = [
        _cross(tried, logits[i : i + 1], labels[i : i + 1], share)
        for i in range(3)
    ]
    mistakes = {
        "the sign is wrong: a log-probability is negative, a loss is "
        "positive": -wanted,
        "padding is counted: leave out where labels are padding": _cross(
            tried, logits, labels, share, ignore_index=-100
        ),
        "this is the sum: divide by the number of real tokens": count * wanted,
        "nothing is smoothed, and padding is counted": _cross(
            tried, logits, labels, ignore_index=-100
        ),
        "the share is spread as a sum over the tokens, not as a mean": (
            per_token(1 - share, share * size)
        ),
        "every sentence weighs the same: add up all tokens, and divide "
        "once by their number": sum(rows) / 3,
        "the right token keeps all of its 1: it gives away the share": (
            per_token(1, share)
        ),
        "the loss takes the softmax twice: it is given logits": _cross(
            tried, logits.softmax(-1), labels, share
        ),
        VIEWED: _cross(tried, _viewed(logits), labels, share),
    }
    return fault(measured, got, mistakes)


VIEWED = (
    "`view` or `reshape` where two axes change places: (batch, V, len) is "
    "logits.transpose(1, 2)"
)


def _viewed(logits: Tensor) -> Tensor:
    """What such a view takes for the logits."""
    return logits.reshape(logits.mT.shape).mT


@probe("loss-smoothing", "loss-smoothed", "loss", after="smoothing")
def no_smoothing(tried: Adapter) -> Verdict:
    """Without smoothing the loss is the negative log-probability of the
    right token."""
    logits, labels = _loss_example(tried)
    got = torch.as_tensor(tried.loss(logits, labels, 0.0)).double()
    wanted = _cross(tried, logits, labels)
    count = (labels != tried.PAD).sum().item()
    if not got.isfinite():
        return fault(
            "without smoothing the loss is not finite: it takes the "
            "logarithm of zero"
        )
    if close(got, wanted) or close(got, wanted * count):
        return paper(f"{got.sum():.4f} nats")
    measured = f"{got.sum():.4f} nats, where the negative log-probability is "
    measured += f"{wanted:.4f} per token"
    if close(got, wanted * count / labels.numel()):
        return deviation(OVER_PADDING, measured)
    mistakes = {
        "the share is always 0.1, whatever is asked for": _cross(
            tried, logits, labels, 0.1
        ),
        "padding is counted: leave out where labels are padding": _cross(
            tried, logits, labels, ignore_index=-100
        ),
        "the loss takes the softmax twice: it is given logits": _cross(
            tried, logits.softmax(-1), labels
        ),
        VIEWED: _cross(tried, _viewed(logits), labels),
    }
    return fault(measured, got, mistakes)


@probe(
    "loss-perplexity",
    "loss-perplexity",
    "loss",
    after="smoothing no_smoothing",
)
def padding_is_free(tried: Adapter) -> Verdict:
    """A loss is per token of the target; padding is none."""
    logits, labels = _loss_example(tried)
    more = torch.cat([logits, torch.randn(3, 3, 11)], 1)
    padded = torch.cat([labels, torch.full((3, 3), tried.PAD)], 1)
    before, after = (
        _loss(tried, *pair).sum().item()
        for pair in ((logits, labels), (more, padded))
    )
    if math.isclose(before, after, rel_tol=1e-4):
        return paper("three more columns of padding change nothing")
    if math.isclose(before * 5, after * 8, rel_tol=1e-4):
        return deviation(
            OVER_PADDING,
            "divided by all positions, so more padding lowers the loss",
            "PyTorch's KLDivLoss with batchmean",
        )
    return fault(
        f"three columns of padding change the loss from {before:.4f} to "
        f"{after:.4f}: padding is counted"
    )


@probe("loss-smoothing", "loss-smoothed", "loss")
def impossible(tried: Adapter) -> Verdict:
    """A token that the model finds nearly impossible costs much, but
    not infinitely much."""
    logits, labels = _loss_example(tried)
    labels = labels.masked_fill(labels == tried.PAD, labels[2, 0].item())
    logits = logits.scatter(2, labels[..., None], -1000.0)
    got = _loss(tried, logits, labels).sum()
    if got.isfinite():
        return paper("finite where a probability rounds to zero")
    return fault(
        f"the loss is {got:.0f} where a probability rounds to zero: work on "
        "log_softmax, not on the logarithm of a softmax"
    )


@probe("schedule-equation-3", "schedule-rate", "learning_rate")
def equation_3(tried: Adapter) -> Verdict:
    """The rate is d_model^-0.5 times the lower of step^-0.5 and
    step * warmup_steps^-1.5."""
    return judge_rate(tried.learning_rate)


@probe("schedule-adam", "schedule-adam", "optimizer")
def adam(tried: Adapter) -> Verdict:
    """Adam with betas of 0.9 and 0.98 and an epsilon of 1e-9."""
    layer = nn.Linear(2, 2)
    optimizer = tried.optimizer(layer)
    group = optimizer.param_groups[0]
    kind = type(optimizer).__name__
    held = {id(p) for g in optimizer.param_groups for p in g["params"]}
    if held != {id(p) for p in layer.parameters()}:
        return fault("the optimizer does not hold all of the model's weights")
    names = {one.__name__ for one in type(optimizer).__mro__}
    if not names & {"Adam", "AdamW"}:
        return deviation("another optimizer", f"{kind}: the paper uses Adam")
    betas, epsilon = tuple(group.get("betas", ())), group.get("eps")
    measured = f"{kind}, betas {betas}, epsilon {epsilon}"
    if any(g.get("weight_decay") for g in optimizer.param_groups):
        return deviation("weight decay", f"{measured}, weight decay")
    if betas != (0.9, 0.98):
        default = betas == (0.9, 0.999)
        who = "Adam's default" if default else "tensor2tensor: 0.9, 0.997"
        return deviation("other betas", measured, who)
    if epsilon != 1e-9:
        return deviation("another epsilon", measured, "Adam's default")
    return paper(measured)


# The largest rate of the paper's base model is 0.0007; its schedule's for
# a small model, 64 wide with a warm-up of 400, is 0.006.
TOO_MUCH = 0.01


@probe("schedule-equation-3", "schedule-rate", "optimizer")
def rate(tried: Adapter) -> Verdict:
    """Adam's steps are as long as its rate, which follows equation 3."""
    optimizer = tried.optimizer(nn.Linear(2, 2))
    most = max(float(group["lr"]) for group in optimizer.param_groups)
    if most in (0, 1):
        return not_tried(f"a rate of {most:g} waits for a schedule")
    if most <= TOO_MUCH:
        return not_tried(
            f"the optimizer begins at {most:g}; what follows is "
            "`learning_rate`'s"
        )
    if tried.has("learning_rate"):
        return not_tried(
            f"the optimizer begins at {most:g}, which is far too much unless "
            "`learning_rate` takes its place at the first step"
        )
    return fault(
        f"the optimizer has a rate of {most:g}, and no schedule is shown: "
        f"Adam's steps are as long, and above {TOO_MUCH} hardly a Transformer "
        "learns. Equation 3 peaks at 0.0007 for the base model"
    )


# One step of the weights


class _Words(nn.Module):
    """A model small enough to compute by hand: it reads the last word
    and the mean of the source."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(d_model=6, vocab_size=12)
        self.table = nn.Parameter(torch.randn(12, 6).double())
        self.matrix = nn.Parameter(torch.randn(6, 6).double())
        self.modes: list[bool] = []  # of the passes that learn

    @property
    def output_weight(self) -> Tensor:
        return self.table

    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.modes.append(self.training)
        about = self.table[source_ids].mean(1, keepdim=True)
        return self.table[target_ids] @ self.matrix + about

    def project(self, hidden: Tensor) -> Tensor:
        return hidden @ self.table.T

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        return self.project(self.hidden(source_ids, target_ids))


def _batch(tried: Adapter, lengths: list[int]) -> SimpleNamespace:
    """Pairs whose targets have these lengths, eos included."""
    longest = max(lengths)
    labels = tried.words(len(lengths), longest, size=12)
    labels = tried.ended(labels, *lengths)
    target_ids = labels.roll(1, 1)
    target_ids[:, 0] = tried.BOS
    target_ids[labels == tried.PAD] = tried.PAD
    source_ids = tried.words(len(lengths), 5, size=12)
    source_ids[:, -1] = tried.EOS
    return SimpleNamespace(
        source_ids=source_ids,
        target_ids=target_ids,
        labels=labels,
        tokens=sum(lengths),
    )


class Steps:
    """How far steps on groups of batches move a small model."""

    def __init__(self, tried: Adapter):
        self.tried = tried
        self.model = _Words()
        self.start = copy.deepcopy(self.model.state_dict())

    def __call__(self, *groups: list[SimpleNamespace]) -> Tensor:
        """The displacement of all weights, at a rate of 0.01."""
        self.model.load_state_dict(self.start)
        self.model.train().zero_grad()
        self.model.modes.clear()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if self.tried.has("updates"):
            self.tried.updates(self.model, optimizer, list(groups))
        else:
            for group in groups:
                self.tried.update(self.model, optimizer, group)
        if not all(self.model.modes):
            raise Wrong(
                "a step is made in evaluation mode, without dropout: call "
                "model.train() again after an evaluation"
            )
        return self.moved()

    def moved(self) -> Tensor:
        pairs = zip(
            self.model.state_dict().values(), self.start.values(), strict=True
        )
        return torch.cat([(a - b).flatten() for a, b in pairs])

    def expected(
        self, batch: SimpleNamespace, labels: Tensor, ignored: int
    ) -> Tensor:
        """The displacement by one step, on the mean over these labels."""
        self.model.load_state_dict(self.start)
        logits = self.model(batch.source_ids, batch.target_ids)
        loss = cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=ignored
        )
        slopes = torch.autograd.grad(loss, list(self.model.parameters()))
        return -0.01 * torch.cat([slope.flatten() for slope in slopes])

    def loss(self, batch: SimpleNamespace) -> float:
        """Nats per token as the weights are now."""
        with torch.no_grad():
            logits = self.model(batch.source_ids, batch.target_ids)
        return _cross(self.tried, logits, batch.labels)


@probe(
    "training-loop", "training-loop", "update|updates", after="shift smoothing"
)
def step(tried: Adapter) -> Verdict:
    """A step changes the weights so that the loss falls."""
    moved = Steps(tried)
    batch = _batch(tried, [5, 4, 3])
    before = moved.loss(batch)
    distance = moved([batch])
    after = moved.loss(batch)
    if distance.abs().max() == 0:
        return fault(
            "nothing moved: call backward() and step(), and clear the "
            "gradients after step(), or before backward(), not between"
        )
    pad, labels = tried.PAD, batch.labels
    right = moved.expected(batch, labels, pad)
    twice = F.pad(labels[:, 1:], (0, 1), value=pad)
    mistakes = {
        "": right,
        "the loss has the wrong sign": -right,
        "the labels are the words that the decoder reads, so it learns to "
        "copy: they are the target one word later": (
            moved.expected(batch, batch.target_ids, pad)
        ),
        "the labels are shifted a second time: each position is asked for "
        "the word after the next": moved.expected(batch, twice, pad),
        "padding is counted in the loss of a step": (
            moved.expected(batch, labels, -100)
        ),
    }
    # whatever the step's length is; smoothing turns it by a hundredth
    along = {
        words: F.cosine_similarity(distance, wanted, 0).item()
        for words, wanted in mistakes.items()
    }
    words = max(along, key=lambda words: along[words])
    if words and along[words] > 0.85:
        return fault(words)
    if after > before or along[""] < 0.8:
        return fault(
            "the step goes elsewhere than down the loss of its labels, which "
            f"comes from {before:.3f} to {after:.3f}: does the loss get "
            "logits, not probabilities, and is it over their last axis?"
        )
    if close(distance, 2 * right, 1e-3):
        return fault("a batch is stepped with twice: call step() once")
    return paper(f"{before:.3f} to {after:.3f} nats per token")


@probe("training-loop", "training-step", "update|updates", after="step")
def old_gradients(tried: Adapter) -> Verdict:
    """Each step uses the gradients of its own batches alone."""
    moved = Steps(tried)
    one, two = _batch(tried, [5, 3]), _batch(tried, [4, 4, 2])
    both = moved([one], [two])
    first = moved([one])
    # the second alone, from where the first has led
    moved.start = copy.deepcopy(moved.model.state_dict())
    alone, second = moved([two]), both - first
    if close(second, alone, 1e-6):
        return paper("a second step is as if it were the first")
    if close(second, alone + first, 1e-2):
        return fault(
            "old gradients are still there: call zero_grad() in each step"
        )
    ratio = (second @ alone / (alone @ alone)).item()
    return fault(
        f"the second step is {ratio:.2f} times as long as it would be alone"
    )


@probe(
    "batches-25000",
    "training-step",
    "update|updates",
    after="step old_gradients",
)
def accumulation(tried: Adapter) -> Verdict:
    """The gradient of several batches is that of one large batch: each
    token counts once."""
    moved = Steps(tried)
    one, two = _batch(tried, [5, 5, 5, 5]), _batch(tried, [2, 1])
    three = _batch(tried, [3])
    batches = one, two, three
    each = [moved([batch]) for batch in batches]
    got = moved(list(batches))
    tokens = [batch.tokens for batch in batches]
    total = sum(tokens)
    weighted = [
        count / total * step for count, step in zip(tokens, each, strict=True)
    ]
    mistakes = {
        "only the last batch counts: clear the gradients once": each[-1],
        "only the last batch counts, divided by all tokens": weighted[-1],
        "only the first batch counts: go through all of them": each[0],
        "only the first batch counts, divided by all tokens": weighted[0],
        "this is a mean of means: divide by the tokens of all": sum(each) / 3,
        "the batches' means are summed: divide all gradients by all tokens": (
            sum(each)
        ),
    }
    if close(moved([_doubled(one)]), 2 * each[0], 1e-6):
        return fault("the loss is a sum: divide it by the tokens")
    if close(got, sum(weighted), 1e-6):
        return paper("three batches give the gradient of all their tokens")
    sizes = [step.norm().item() for step in each]
    if math.isclose(min(sizes), max(sizes), rel_tol=1e-3):
        return deviation(
            "clipped gradients",
            f"whatever the batch, its gradient has a norm of "
            f"{100 * sizes[0]:.3g}",
            "much code, with a largest norm of 1",
        )
    for words, wrong in mistakes.items():
        if close(got, wrong, 1e-6):
            return fault(words)
    return fault(
        "three batches do not give the gradient of their tokens: is there a "
        "step for each batch? Call step() once. If your loop takes one batch "
        "a step, raise NotImplementedError for more. Or are gradients clipped?"
    )


def _doubled(batch: SimpleNamespace) -> SimpleNamespace:
    """The same pairs twice over."""
    twice = {
        name: torch.cat([value, value])
        for name, value in vars(batch).items()
        if isinstance(value, Tensor)
    }
    return SimpleNamespace(**twice, tokens=2 * batch.tokens)


@probe(
    "loss-perplexity",
    "training-step",
    "update|updates",
    after="step padding_is_free",
)
def padding_of_a_batch(tried: Adapter) -> Verdict:
    """Padding of the target adds nothing to a step."""
    moved = Steps(tried)
    batch = _batch(tried, [5, 3])
    wider = copy.deepcopy(batch)
    for name in ("target_ids", "labels"):
        more = torch.full((2, 3), tried.PAD)
        setattr(wider, name, torch.cat([getattr(batch, name), more], 1))
    before, after = moved([batch]), moved([wider])
    if close(before, after, 1e-6):
        return paper("three more columns of padding, the same step")
    return fault("padding is counted in the loss of a step")


@probe("checkpoints-average", "checkpoints-average", "average")
def average(tried: Adapter) -> Verdict:
    """The model that translates is the mean of its last checkpoints."""
    states = [{"w": torch.randn(3, 4), "b": torch.randn(5)} for _ in range(5)]
    given = [
        {name: weight.clone() for name, weight in state.items()}
        for state in states
    ]
    got = tried.average(given)
    changed = any(
        not torch.equal(given[i][name], weight)
        for i, state in enumerate(states)
        for name, weight in state.items()
    )
    right = {name: sum(s[name] for s in states) / 5 for name in states[0]}
    running = states[0]["w"]
    for state in states[1:]:
        running = (running + state["w"]) / 2
    if all(close(got[name], right[name]) for name in right):
        if changed:
            return fault(
                "your function changes the checkpoints it is given: add to a "
                "copy of the first one. A tied matrix stands in a checkpoint "
                "under two names, and in place it would be added twice"
            )
        return paper("the mean of five, weight by weight")
    mistakes = {
        "this is the sum: divide by the number of checkpoints": (
            5 * right["w"]
        ),
        "this is (mean + next) / 2, so the last checkpoint counts half": (
            running
        ),
        "this is the last checkpoint": states[-1]["w"],
    }
    otherwise = "not the mean of the checkpoints' weights"
    return fault(otherwise, got["w"], mistakes)
