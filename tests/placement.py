"""The library on a device that does not exist.

    python tests/placement.py [fault]

Fake tensors know their shape and device and have no values: a tensor
left on another device is an error, and so is every look at a value,
for which the host would wait on a GPU. The looks that a search and a
validation cannot do without are answered here, and counted.
`test_placement` runs this in a process of its own, as it is and with
each fault.
"""

import sys

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration

from transformer_lib import beams, decoding, model, training
from transformer_lib.batching import Batch, TokenBatches, collate
from transformer_lib.embeddings import EOS
from transformer_lib.loss import validation_loss
from transformer_lib.schedule import TrainingConfig, adam

DEVICE = "made_up"
PAIRS = [([7, 8, 9, EOS], [5, 6, EOS]), ([9, EOS], [8, 7, 6, EOS])]
LOOKS = {"lists": 0, "arrays": 0, "numbers": 0, "steps": 0}
CAST = set()


def mask_left_behind():
    real = model.padding_mask
    model.padding_mask = lambda ids: real(ids).cpu()


def hidden_wait():
    real = model.padding_mask

    def waits(ids):
        mask = real(ids)
        return mask if mask.all() else ~mask

    model.padding_mask = waits


def labels_left_behind():
    real = Batch.to

    def forgets(batch, device):
        moved = real(batch, device)
        moved.labels = batch.labels
        return moved

    Batch.to = forgets


def second_transfer():
    real = decoding.next_logs

    def looks(*given):
        logs = real(*given)
        logs.tolist()
        return logs

    decoding.next_logs = beams.next_logs = looks


FAULTS = {
    fault.__name__: fault
    for fault in (
        mask_left_behind,
        hidden_wait,
        labels_left_behind,
        second_transfer,
    )
}


def answer_list(tensor):
    """Limits of 3 at first; then the numbers of rows, or zeros."""
    LOOKS["lists"] += 1
    if tensor.dim() == 2:
        return [[0] * tensor.size(1) for _ in range(len(tensor))]
    first = LOOKS["lists"] == 1
    return [3] * len(tensor) if first else list(range(len(tensor)))


def answer_array(tensor):
    """What the host gets to see at the end of a search."""
    assert tensor.device.type == "cpu"
    LOOKS["arrays"] += 1
    return np.zeros(tensor.shape, int)


def rows_to_keep(going):
    """All rows at first, then one of them, then none: 3 steps."""
    assert going.device.type == DEVICE
    left = {1: None, 2: 1, 3: 0}[LOOKS["steps"] + 1]
    LOOKS["steps"] += 1
    if left is None:
        return slice(None)
    return torch.empty(left, dtype=torch.long, device=DEVICE)


def look_of(search, transformer, source_ids):
    """How often a search has waited for the device, by kind."""
    LOOKS.update(lists=0, arrays=0, numbers=0, steps=0)
    search(transformer, source_ids)
    return dict(LOOKS)


REAL = torch.tensor


def new_tensor(data, *, device="cpu", **options):
    """`torch.tensor` without values, so that none is looked at."""
    made = REAL(data, **options)
    return torch.empty(made.shape, dtype=made.dtype, device=device)


def new_like(tensor, data):
    return new_tensor(data, dtype=tensor.dtype, device=tensor.device)


def answer_number(tensor):
    LOOKS["numbers"] += 1
    return 1.0


def training_steps(transformer, batch):
    optimizer = adam(transformer)
    optimizer.param_groups[0]["lr"] = 1e-3
    for precision in "fp32", "bf16":
        config = TrainingConfig(precision=precision)
        smoothed, nll = training._Losses(transformer, config)(batch)
        (smoothed / batch.tokens).backward()
        assert smoothed.device.type == nll.device.type == DEVICE
        for weight in transformer.parameters():
            assert weight.grad.device.type == DEVICE
        optimizer.step()
        optimizer.zero_grad()


def set_up():
    """The device, and an autocast that casts products as others do."""
    register = backend_registration
    register._setup_privateuseone_for_python_backend(DEVICE)
    module = getattr(torch, DEVICE)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    key = "AutocastPrivateUse1"
    rest = torch.library.Library("_", "IMPL", key)
    rest.fallback(torch.library.fallthrough_kernel)
    products = torch.library.Library("aten", "IMPL", key)
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(name):
        def product(*given):
            CAST.add(name)
            half = [x if x is None else x.bfloat16() for x in given]
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return getattr(torch.ops.aten, name)(*half)

        products.impl(name, product)

    cast("linear")
    cast("matmul")
    return rest, products  # they work as long as they are kept


def main(fault=None):
    kept = set_up()
    if fault:
        FAULTS[fault]()
    FakeTensor.tolist = answer_list
    FakeTensor.item = answer_number
    FakeTensor.numpy = answer_array
    torch.tensor, FakeTensor.new_tensor = new_tensor, new_like
    with FakeTensorMode():
        with torch.device(DEVICE):
            sizes = model.TransformerConfig.tiny(50, dropout=0.1)
            transformer = model.Transformer(sizes)
        training_steps(transformer, collate(PAIRS))
        assert CAST == {"linear", "matmul"}, f"in bf16: {CAST}"
        assert not any(LOOKS.values()), f"training looks: {LOOKS}"

        validation_loss(transformer, TokenBatches(PAIRS, 8))
        once = {"lists": 0, "arrays": 0, "numbers": 1, "steps": 0}
        assert LOOKS == once, f"of 1 batch: {LOOKS}"

        source_ids = collate(PAIRS).source_ids.to(DEVICE)
        decoding._rows_to_keep = beams._rows_to_keep = rows_to_keep
        # Whether there is padding, and how many go on at each step;
        # lists are the limits, and at the end what each step left.
        for search, lists, arrays in (
            (decoding.greedy_decode, 1 + 3 * 3, 0),
            (beams.beam_search, 1, 3 * 4),
        ):
            looks = look_of(search, transformer, source_ids)
            wanted = {"lists": lists, "arrays": arrays}
            wanted |= {"numbers": 1, "steps": 3}
            assert looks == wanted, f"of 3 steps: {looks}"
    del kept
    print("everything is where it belongs")


if __name__ == "__main__":
    main(*sys.argv[1:])
