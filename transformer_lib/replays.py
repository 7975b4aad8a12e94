# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Training steps on a GPU, recorded once and replayed (CUDA graphs).

Chapter: book/appendix/replays
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_lib.batching import Batch
from transformer_lib.training import Gradients, worker


def why_not_replayed(model: nn.Module) -> str | None:
    """What hinders `Replays` of a model, in words; None if nothing does.

    A replay runs no Python, so a hook, or a module that is neither
    PyTorch's nor this library's, might be left out in silence.

    Chapter: replays-refused
    """
    for name, module in model.named_modules():
        if hasattr(module, "_orig_mod"):
            return "the model is compiled"
        kind = type(module).__name__
        what = f"{name}, a {kind}," if name else f"the model, a {kind},"
        home = type(module).__module__.partition(".")[0]
        if home not in ("torch", "transformer_lib"):
            return f"{what} is neither PyTorch's nor this library's"
        if (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
        ):
            return f"{what} has a hook, which a replay would not call"
    for name, weight in model.named_parameters():
        if weight._backward_hooks or weight._post_accumulate_grad_hooks:
            return f"{name} has a hook, which a replay would not call"
    if worker()[1] > 1:
        return "several workers exchange gradients within a step"
    device = next(model.parameters()).device
    if device.type != "cuda":
        return f"the model is on the device {device}, not on a GPU of CUDA"
    if device.index != torch.cuda.current_device():
        return f"the model is on {device}, which is not the GPU in use"
    return None


@dataclass
class _Recording:
    """A graph, and where it reads its batch and writes its sums.

    Chapter: replays-recording
    """

    graph: "torch.cuda.CUDAGraph"
    batch: Batch
    tokens: Tensor
    sums: Tensor

    def replay(self, batch: Batch, tokens: int) -> Tensor:
        self.batch.source_ids.copy_(batch.source_ids)
        self.batch.target_ids.copy_(batch.target_ids)
        self.batch.labels.copy_(batch.labels)
        self.tokens.fill_(tokens)
        self.graph.replay()
        return self.sums.clone()


class Replays(Gradients):
    """`Gradients` on a GPU, recorded for each shape of a batch.

    For `train(..., gradients=Replays)`. `evaluate` may not move the
    model, set gradients to None, or change what is dropped or frozen:
    the first two are noticed, the last two are not.

    Raises:
        ValueError: for a model that cannot be replayed, with the reason.
        RuntimeError: if a weight or its gradient has been moved.

    Chapter: replays-recording
    """

    most = 256  # recordings

    def __init__(self, losses: nn.Module):
        super().__init__(losses)
        reason = why_not_replayed(losses)
        if reason is not None:
            raise ValueError(f"steps cannot be recorded: {reason}")
        self.pool = torch.cuda.graph_pool_handle()  # memory of all graphs
        self.recordings: dict[tuple, _Recording | None] = {}
        self.kept = []
        for name, weight in losses.named_parameters():
            weight.grad = None
            if weight.requires_grad:
                weight.grad = torch.zeros_like(weight)
                place = weight.data_ptr()
                self.kept.append((name, weight, weight.grad, place))

    def clear(self) -> None:
        """Zeros in place, as the recordings write there."""
        torch._foreach_zero_([gradient for _, _, gradient, _ in self.kept])

    def add(self, batch: Batch, tokens: int) -> Tensor:
        """As `Gradients.add`, by a replay from the second time on."""
        for name, weight, gradient, place in self.kept:
            if weight.grad is not gradient or weight.data_ptr() != place:
                raise RuntimeError(
                    f"{name} or its gradient is no longer where steps were "
                    "recorded: if `evaluate` moves the model, or sets its "
                    "gradients to None, train without Replays"
                )
        shape = batch.source_ids.shape, batch.labels.shape
        if shape not in self.recordings:
            if len(self.recordings) < self.most:
                self.recordings[shape] = None  # seen once
            return super().add(batch, tokens)
        batch = batch.to("cuda")
        recording = self.recordings[shape]
        if recording is None:
            try:
                recording = self.record(batch, tokens)
            except torch.OutOfMemoryError:
                self.most = 0  # from here on no further shape is recorded
                self.recordings = {
                    shape: done
                    for shape, done in self.recordings.items()
                    if done is not None
                }
                return super().add(batch, tokens)
            self.recordings[shape] = recording
        return recording.replay(batch, tokens)

    def record(self, batch: Batch, tokens: int) -> _Recording:
        """Record the kernels for a batch of this shape; none runs yet."""
        graph, own = torch.cuda.CUDAGraph(), copy.deepcopy(batch)
        count = torch.full_like(own.labels[0, 0], tokens)
        # Other threads may use the GPU in the meantime.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode=mode):
            sums = super().add(own, count)
        return _Recording(graph, own, count, sums)
