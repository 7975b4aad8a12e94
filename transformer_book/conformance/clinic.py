"""One function to paste beside a model that does not learn."""

import math

import torch
from torch.nn.functional import cross_entropy


def probe(model, vocab_size, pad=0, bos=2, eos=3, step=None):
    """Try a model that maps source_ids, target_ids to logits.

    `step(model, optimizer, source_ids, target_ids, labels)` is one step
    of your training, if you want your loop to be tried. Prints what it
    finds; afterwards the model has learnt a batch by heart.
    """
    torch.manual_seed(0)
    words = [i for i in range(vocab_size) if i not in (0, pad, bos, eos)]
    words = torch.tensor(words)
    source = words[torch.randint(len(words), (8, 9))]
    labels = words[torch.randint(len(words), (8, 7))]
    target = labels.roll(1, 1)
    target[:, 0] = bos
    found = {}

    def note(name, fine, measured, advice):
        found[name] = fine
        print(f"{'ok  ' if fine else 'LOOK'} {name}: {measured}")
        if not fine:
            print(f"     {advice}")

    @torch.no_grad()
    def scores(source, target):
        model.eval()
        return model(source, target).double()

    def loss_of(logits):
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    plain = scores(source, target)
    spread, flat = plain.std().item(), math.log(vocab_size)
    loss = loss_of(plain).item()

    def moved(other):
        """How far the scores of each position move, in spreads."""
        return (plain - other).abs().amax((0, 2)) / spread

    note(
        "loss before training",
        flat - 0.1 < loss < 1e9 and spread < 4,
        f"{loss:.2f}, ln V = {flat:.2f}; scores have a spread of {spread:.2f}",
        "Below ln V: it sees its labels. A spread above 4: the weights "
        "are too large; a tied table needs entries of size d_model^-0.5. "
        "nan: a mask forbids every key, or a softmax runs over queries.",
    )
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
        "No causal mask, or turned; or heads that are cut or joined "
        "without transpose, which mixes positions.",
    )
    padding = torch.full((8, 3), pad)
    hidden = moved(scores(torch.cat([source, padding], 1), target))
    note(
        "padding",
        hidden.max().item() < 1e-4,
        f"padding moves the scores by {hidden.max():.1g}",
        "No mask in the encoder or over the memory, or inverted; or a "
        "softmax that runs over the queries, which may give nan.",
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
        order > 1e-4,
        f"two swapped words move the scores by {order:.1g}",
        "The encoder gets no positions, or words that drown them.",
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
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and (weight.grad is None or not weight.grad.any())
    ]
    note(
        "every matrix",
        not idle,
        f"no gradient reaches {len(idle)} matrices {', '.join(idle[:1])}",
        "Its layer is skipped, or its result is not used.",
    )
    start = {k: v.clone() for k, v in model.state_dict().items()}
    if step is not None:
        model.eval()  # without dropout, so that steps can be compared
        lengths = []
        for count in (1, 2):
            model.load_state_dict(start)
            model.zero_grad()
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for _ in range(count):
                step(model, optimizer, source, target, labels)
            after = model.state_dict()
            change = [(after[k] - v).flatten() for k, v in start.items()]
            lengths.append(torch.cat(change).norm().item())
        ratio = lengths[1] / max(lengths[0], 1e-12)
        note(
            "your training step",
            1.5 < ratio < 2.5,
            f"two steps go {ratio:.2f} times as far as one",
            "Nearly 3: old gradients are added, zero_grad is missing. "
            "0: nothing moves; is the optimizer made of these weights?",
        )
    model.load_state_dict(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for steps in range(1, 101):
        optimizer.zero_grad()
        if step is not None:
            step(model, optimizer, source, target, labels)
        else:
            loss_of(model(source, target)).backward()
            optimizer.step()
        if steps % 25 == 0:
            left = loss_of(scores(source, target)).item()
            if left < 0.3:
                break
    note(
        "one batch by heart",
        left < 0.5,
        f"after {steps} steps {left:.2f} nats per token",
        "More data will not help: first mend what is marked above.",
    )
    return found
