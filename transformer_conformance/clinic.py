"""One function to paste beside a model that does not learn."""

import inspect
import math
from os.path import commonprefix
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy

# What PyTorch's errors in a forward pass mean, the likeliest first.
LIKELY = {
    "to_padded_tensor": "in evaluation mode PyTorch's own encoder found no "
    "word in a sentence. Is the padding mask turned round? For PyTorch True "
    "means hidden (ids == PAD); or a mask hides all of a row",
    "src_key_padding_mask": "is `batch_first=True` missing? Without it "
    "PyTorch takes (len, batch, d_model)",
    "key_padding_mask": "is `batch_first=True` missing? Without it PyTorch "
    "takes (len, batch, d_model); or a mask of the source is given for the "
    "target",
    "attn_mask": "is `batch_first=True` missing? Without it PyTorch takes "
    "(len, batch, d_model); or a mask has another shape than "
    "(target_len, target_len)",
    "is invalid for input of size": "is `batch_first=True` missing, or is "
    "`view` used where the axes had to be moved back first?",
    "must match the size": "are positions added along the axis of the "
    "batch, is `batch_first=True` missing, has a mask another length, or is "
    "a row divided by its sum without `keepdim=True`?",
    "must be equal": "is `batch_first=True` missing? Without it PyTorch "
    "takes (len, batch, d_model), and source and target differ in `batch`",
    "index out of range": "an id is not below vocab_size, or a position is "
    "not below the length of the table",
}


def likely(error):
    """What an error in a model probably comes from, or ''."""
    said = str(error)
    return next((words for part, words in LIKELY.items() if part in said), "")


def probe(
    model,
    vocab_size,
    pad=0,
    bos=2,
    eos=3,
    batch=None,
    train_step=None,
    optimizer=None,
):
    """Try a model that maps source_ids, target_ids to logits.

    `batch` is three tensors of one batch of yours, (batch, len) each:
    source_ids, target_ids (what the decoder reads) and labels (what it
    has to say). `train_step(model, optimizer, source_ids, target_ids,
    labels)` is one step of your training, with the optimizer that it is
    given; `optimizer` is your own, whose rate is read. Without them, your
    data, your loop and your rate are not tried. Prints what it finds;
    afterwards the model has learnt a batch by heart.
    """
    torch.manual_seed(0)
    device = next(model.parameters()).device
    words = [i for i in range(vocab_size) if i not in (0, pad, bos, eos)]
    words = torch.tensor(words, device=device)

    def sentences(length):
        ids = words[torch.randint(len(words), (8, length), device=device)]
        ids[:, -1] = eos
        return ids

    source, labels = sentences(9), sentences(7)
    target = labels.roll(1, 1)
    target[:, 0] = bos
    found = {}

    def note(name, fine, measured, advice):
        found[name] = bool(fine)
        print(f"{'ok  ' if fine else 'LOOK'} {name}: {measured}")
        if not fine:
            print(f"     {advice}")

    @torch.no_grad()
    def scores(source, target):
        model.eval()
        return model(source, target).double()

    def loss_of(logits):
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    if batch is not None:
        ids, given, wanted = batch
        real = wanted != pad
        ends = (wanted == eos).sum(1)
        shifted = (given[:, 1:] == wanted[:, :-1])[real[:, 1:]].all()
        begun = (given[:, 0] == bos).all()
        wrong = [
            said
            for said, fine in {
                "the labels are not the target one word later": shifted,
                "a target does not begin with bos": begun,
                "a sentence's labels do not have one eos": (ends == 1).all(),
                "an id is not below vocab_size": max(x.max() for x in batch)
                < vocab_size,
            }.items()
            if not fine
        ]
        note(
            "your batch",
            not wrong,
            "; ".join(wrong) or "bos first, labels one word later, one eos",
            "The decoder reads bos y1 y2, the labels are y1 y2 eos.",
        )
    taken = inspect.signature(model.forward).parameters.values()
    needed = [x for x in taken if x.default is x.empty and x.kind < 2]
    if len(needed) == 1:
        note(
            "a first pass",
            False,
            f"the model asks for {needed[0].name} alone",
            "Here a model reads a source and a target. One that is a decoder "
            "alone, as GPT is, goes to the suite, as logits(model, ids): "
            "python -m transformer_conformance --example gpt",
        )
        return found
    try:
        plain = scores(source, target)
    except Exception as error:
        words = "Does it take two tensors of ids, (batch, len)?"
        words = likely(error) or words
        said = str(error).partition("\n")[0]
        note("a first pass", False, f"{type(error).__name__}: {said}", words)
        return found
    spread, flat = plain.std().item(), math.log(vocab_size)
    loss = loss_of(plain).item()
    if not math.isfinite(loss):
        note(
            "loss before training",
            False,
            f"{loss}, and nothing else can be tried",
            "A mask forbids every key, a softmax runs over the wrong axis, "
            "or something is divided by zero.",
        )
        return found

    def moved(other):
        """How far the scores of each position move, in spreads."""
        return (plain - other).abs().amax((0, 2)) / spread

    # This book's models have a spread of about 1.2, probabilities of 0.07;
    # 4 is chosen. By chance 56 labels come 0.1 below at 3 standard errors.
    note(
        "loss before training",
        flat - 0.1 < loss and 0.1 < spread < 4,
        f"{loss:.2f}, ln V = {flat:.2f}; scores have a spread of {spread:.2g}",
        "Below ln V: it sees its labels. A spread above 4: the weights "
        "are too large; a tied table needs entries of size d_model^-0.5. "
        "Below 0.1: are these probabilities? The loss wants scores, "
        "without a softmax.",
    )
    # What must be 0 is below 5e-6 in this book's models, by rounding, and
    # what must move is at least 0.03: 1e-4 and 1e-3 lie between.
    again = moved(scores(source, target)).max().item()
    note(
        "evaluation",
        again < 1e-4,
        f"two passes differ by {again:.1g}",
        "Dropout is on in evaluation mode.",
    )
    later = target.clone()
    later[:, 4:] = labels[:, :3]
    leak = moved(scores(source, later))[:4].max().item()
    note(
        "the future",
        leak < 1e-4,
        f"later words move earlier scores by {leak:.1g}",
        "No causal mask, or turned; or cross-attention reads the decoder; "
        "or heads that are cut or joined without transpose, or a softmax "
        "that runs over the queries, which mix positions.",
    )
    padding = torch.full((8, 3), pad, device=device)
    hidden = moved(scores(torch.cat([source, padding], 1), target))
    note(
        "padding",
        hidden.max().item() < 1e-4,
        f"padding moves the scores by {hidden.max():.1g}",
        "No mask in the encoder or over the memory, or inverted; or heads "
        "split by `view` alone, without transpose; or a softmax that runs "
        "over the queries, which may give nan.",
    )
    read = moved(scores(source.flip(0), target)).max().item()
    note(
        "the source",
        read > 1e-3,
        f"another source moves the scores by {read:.1g}",
        "The decoder doesn't read the encoder's output.",
    )
    swapped = source.clone()
    swapped[:, [2, 3]] = source[:, [3, 2]]
    order = moved(scores(swapped, target)).max().item()
    note(
        "the order of words",
        order > 1e-3,
        f"two swapped words move the scores by {order:.1g}",
        "If the future, padding or the source is marked, mend that first. "
        "Otherwise the encoder gets no positions, or they run along the axis "
        "of the batch, or they drown the words.",
    )
    same = scores(source, target[:, 1:2].expand(-1, 7).contiguous())
    turns = ((same - same[:, :1]).abs().max() / spread).item()
    note(
        "positions in the decoder",
        turns > 1e-3,
        f"one word seven times: its scores differ by {turns:.1g}",
        "The decoder gets no positions.",
    )
    past = target.clone()
    past[:, 1] = labels[:, 3]
    kept = moved(scores(source, past))[-1].item()
    note(
        "the past",
        kept > 1e-4,
        f"the second word moves the last scores by {kept:.1g}",
        "The decoder sees only its newest word.",
    )
    model.zero_grad()
    loss_of(model(source, target)).backward()
    matrices = [x for x in model.named_parameters() if x[1].dim() > 1]
    idle = [
        name
        for name, weight in matrices
        if weight.grad is None or not weight.grad.any()
    ]
    note(
        "every matrix",
        not idle,
        f"no gradient reaches {len(idle)} of {len(matrices)}"
        + (f": {commonprefix(idle).rstrip('.') or idle[0]}…" if idle else ""),
        "Its layer is skipped, or its result is not used.",
    )

    def forgets_the_target():
        gap = scores(source, target) - scores(source, target.flip(0))
        return gap[:, 1:].abs().max() < 1e-5 * spread  # rounding

    said = "with any one matrix set to zero, the target counts"
    remembers = not forgets_the_target()
    if not remembers:
        said = "the scores are the same for every target"
    for name, weight in matrices:
        if not remembers or vocab_size in weight.shape:  # a table of words
            continue
        kept = weight.detach().clone()
        weight.data.zero_()
        if forgets_the_target():
            remembers = False
            said = f"with {name} set to zero, the target is forgotten"
        weight.data.copy_(kept)
    note(
        "residual connections",
        remembers,
        said,
        "Around a sub-layer of the decoder x is not added to the output.",
    )
    start = {k: v.clone() for k, v in model.state_dict().items()}
    rates = []

    def steps_from_start(kind, count, more=0):
        """Train on the batch, perhaps with more columns of padding;
        yields after each step."""
        columns = torch.full((8, more), pad, device=device)
        reads, wants = (torch.cat([x, columns], 1) for x in (target, labels))
        model.load_state_dict(start)
        model.zero_grad()
        optimizer = kind(model.parameters(), lr=1e-3)

        def hold(optimizer, *_):  # whatever your schedule says
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.param_groups[0]["lr"] = 1e-3

        optimizer.register_step_pre_hook(hold)
        for _ in range(count):
            if train_step is not None:
                train_step(model, optimizer, source, reads, wants)
            else:
                optimizer.zero_grad()
                loss_of(model(source, target)).backward()
                optimizer.step()
            yield

    if train_step is not None:
        lengths = []
        for count, more in ((1, 0), (2, 0), (1, 3)):
            model.eval()  # without dropout, so that steps can be compared,
            # whatever your step calls
            with patch.object(model, "train", return_value=model):
                list(steps_from_start(torch.optim.SGD, count, more))
            after = model.state_dict()
            change = [(after[k] - v).flatten() for k, v in start.items()]
            lengths.append(max(torch.cat(change).norm().item(), 1e-12))
        ratio = lengths[1] / lengths[0]
        note(
            "your training step",
            1.5 < ratio < 2.5,  # here 2.00; the mistakes have 3 and 1
            f"at one rate two steps go {ratio:.2f} times as far as one",
            "Nearly 3: old gradients are added, zero_grad is missing. "
            "Exactly 1: nothing moves; are the gradients still there when the "
            "optimizer steps, and is it made of these weights?",
        )
        wider = lengths[2] / lengths[0]
        note(
            "padding in the loss",
            0.99 < wider < 1.01,  # here 1.00; with padding counted 0.89
            f"padded labels make the step {wider:.2f} times as long",
            "If the future or padding is marked, mend that first. Otherwise "
            "leave out the positions whose label is padding.",
        )
    for steps, _ in enumerate(steps_from_start(torch.optim.Adam, 100), 1):
        if steps % 25 == 0:
            left = loss_of(scores(source, target)).item()
            if left < 0.3:  # learnt; chosen, below the 0.5 asked for
                break
    rate = max(rates, default=1e-3) if train_step is not None else 1e-3
    measured = f"at most {rate:.2g} in the first {len(rates)} steps"
    if rate == 1e-3 and optimizer is not None:
        rate = max(group["lr"] for group in optimizer.param_groups)
        measured = f"{rate:.2g}, that of your optimizer"
    if rate == 1e-3 and optimizer is None:
        print("---- your rate: not tried; the optimizer here is ours")
    else:
        note(
            "your rate",
            rate <= 0.01,  # chosen: ten times the 0.001 of our own try
            measured,
            "Adam's steps are as long as its rate: 0.01 is too much.",
        )
    mend = "More data will not help: first mend what is marked above."
    if all(found.values()):
        mend = (
            "Nothing above is marked. Look at your loss: is it minus the "
            "log-probability, of the labels and not of the target, over "
            "the last axis, without a second softmax? Then at your rate."
        )
    note(
        "one batch by heart",
        left < 0.5,  # this book's models have 0.1; what fails, 3.9 and more
        f"after {steps} steps {left:.2f} nats per token",
        mend,
    )
    return found
