# Collected from book/results/replay.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""A step of decoding, recorded once and replayed, for cards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import Batch
from transformer_lib.beams import beam_search
from transformer_lib.decoding import (
    Hypotheses,
    Stepper,
    TargetCache,
    greedy_decode,
    length_limits,
)
from transformer_lib.masks import padding_mask
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import EOS, PAD

__all__ = [
    "FixedCache",
    "ReplayedStepper",
    "SEARCHES",
    "Search",
    "Tape",
    "recorded",
    "time_search",
]


class Tape(TorchDispatchMode):
    """The operations of some work, to be done again and again.

    What a CUDA graph is, on any machine: the same operations in the
    same order, on the same tensors, with the results put where the
    first ones were. Making a tape does the work, too; a card would
    only note it.

    Raises:
        ValueError: if the work looks at the value of a tensor.

    Chapter: replay-tape
    """

    def __init__(self, work: Callable[[], None]):
        super().__init__()
        self.calls: list[tuple] = []
        with self:
            work()

    def __torch_dispatch__(
        self, operation, types, args=(), named=None
    ):
        if torch.Tag.data_dependent_output in operation.tags:
            raise ValueError(
                "work that looks at the value of a tensor cannot be "
                "recorded: another time the value will be another"
            )
        found = operation(*args, **(named or {}))
        self.calls.append((operation, args, named or {}, found))
        return found

    def replay(self) -> None:
        """Do it again: no line of Python of the work is run."""
        for operation, args, named, found in self.calls:
            again = operation(*args, **named)
            pairs = zip(
                tree_leaves(found), tree_leaves(again), strict=True
            )
            for old, new in pairs:
                if isinstance(old, Tensor) and old is not new:
                    old.copy_(new)


class FixedCache(TargetCache):
    """A target's cache whose shape is the same at every step.

    New keys and values go to `position` (1,), and all places are
    handed out: those behind `position` are to be masked.

    Chapter: replay-fixed
    """

    def __init__(self, max_length: int, position: Tensor):
        super().__init__(max_length)
        self.position = position

    def keys_values(
        self, attention: MultiHeadAttention, new: Tensor
    ) -> list[Tensor]:
        """Write (rows, 1, d_model); keys and values of all places."""
        parts = attention.keys_values(new)
        for x in parts if not self.room else []:
            shape = *x.shape[:2], self.max_length, x.size(3)
            self.room.append(x.new_zeros(shape))
        for x, part in zip(self.room, parts, strict=True):
            x.index_copy_(2, self.position, part)
        return self.room

    def select(self, rows: Tensor) -> None:
        """In place: on a tape, memory cannot change hands."""
        for x in self.room:
            x.copy_(x.index_select(0, rows))


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def recorded(
    work: Callable[[], None], device: torch.device
) -> Callable[[], None]:
    """Record `work`, and give what does it on the same memory.

    On CUDA cards the record is a CUDA graph, elsewhere a `Tape`.

    Chapter: replay-stepper
    """
    if device.type != "cuda":
        work()
        return Tape(work).replay
    graph, side = torch.cuda.CUDAGraph(), _side_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        work()
        work()  # the first time there was nothing to reorder
    with torch.cuda.graph(graph, stream=side):
        work()
    torch.cuda.current_stream(device).wait_stream(side)
    return graph.replay


class ReplayedStepper(Stepper):
    """A stepper whose steps are all the same, recorded at the first.

    For every search. No row ever leaves, and attention reads all
    `max_length` places. Not while attention is recorded, which is
    a look at values. Section 6.1.

    Chapter: replay-stepper
    """

    fixed = True

    def __init__(
        self, model: Transformer, source_ids: Tensor, max_length: int
    ):
        super().__init__(model, source_ids, max_length)
        zero = model.output_weight.new_zeros(
            max_length, model.config.d_model
        )
        self.encodings = zero
        if model.positions is not None:
            self.encodings = model.positions(zero[None])[0]
        self.places = torch.arange(max_length, device=zero.device)
        self.position = self.places[:1].clone()  # (1,)
        self.cache.self_attention = [
            FixedCache(max_length, self.position)
            for _ in model.decoder.layers
        ]
        self.mask, self.replay = None, None
        if self.source_ids is not None:
            self.mask = padding_mask(source_ids, model.config.pad_id)

    def hidden(self, last: Tensor) -> Tensor:
        table = self.model.target_embedding
        x = table.weight[last] * table.factor
        x = x + self.encodings[self.position]  # (rows, d_model)
        seen = (self.places <= self.position)[None, None, None]
        return self.model.decoder(
            x[:, None], None, seen, self.mask, self.cache
        )[:, -1]

    def step(self, k: int) -> None:
        """What is recorded: reorder, decode, choose."""
        if k > 1:
            self.cache.select(self.rows)
        self.found = super().next(self.last, k)

    def next(self, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """As `Stepper.next`; the next call overwrites the result."""
        if self.replay is None:
            self.last = last.clone()
            self.rows = torch.arange(len(last), device=last.device)
            self.replay = recorded(lambda: self.step(k), last.device)
        else:
            self.position += 1
        self.last.copy_(last)
        self.replay()
        return self.found

    def select(
        self, rows: Tensor, sources: Tensor | None = None
    ) -> None:
        """Reorder at the next step; see `DecoderCache.select`."""
        self.rows.copy_(rows)


@dataclass(frozen=True)
class Search:
    """One way to decode: `size` is a preset, or "" for the task's.

    Chapter: replay-found
    """

    size: str
    beam_size: int = 1
    replayed: bool = False
    precision = "fp32"
    by_sentence = False

    @property
    def name(self) -> str:
        """In words, such as "tiny, beam 4, replayed"."""
        beam = "greedy"
        if self.beam_size > 1:
            beam = f"beam {self.beam_size}"
        words = [self.size, beam, "replayed" if self.replayed else ""]
        return ", ".join(word for word in words if word)

    def __call__(
        self, model: Transformer, batch: Batch
    ) -> Hypotheses:
        """Outputs exactly as long as the batch's references."""
        source_ids = batch.source_ids
        stepper = ReplayedStepper if self.replayed else Stepper
        wanted = (batch.labels != PAD).sum(1)
        extra = wanted - length_limits(model, source_ids, 0)
        if self.beam_size == 1:
            return greedy_decode(model, source_ids, extra, stepper)
        return beam_search(
            model, source_ids, self.beam_size, 0.6, extra, stepper
        )


SEARCHES = [
    Search(size, beam_size, replayed)
    for size in ("tiny", "base")
    for beam_size in (1, 4)
    for replayed in (False, True)
]


def time_search(
    search: Search,
    config: TransformerConfig,
    batches: list[Batch],
    device: torch.device,
    warm_up: int = 3,
) -> dict[str, float]:
    """Decode batches with random weights: speed, and agreement.

    The first `warm_up` batches are not timed. `same` is the share of
    their sentences in which a replayed search found what a plain one
    finds.

    Chapter: replay-found
    """
    torch.manual_seed(0)
    model = Transformer(config).to(device)
    with torch.no_grad():
        model.output_weight[EOS] = 0  # never the likeliest
    batches = [batch.to(device) for batch in batches]
    plain, same = replace(search, replayed=False), []
    for batch in batches[:warm_up]:
        found = search(model, batch).ids, plain(model, batch).ids
        same += [a == b for a, b in zip(*found, strict=True)]
    timed, began = batches[warm_up:], perf_counter()
    for batch in timed:
        search(model, batch)
    seconds = perf_counter() - began
    steps = sum(batch.labels.size(1) for batch in timed)
    tokens = sum(batch.tokens for batch in timed)
    return {
        "step_seconds": seconds / steps,
        "target_tokens_per_second": tokens / seconds,
        "same": sum(same) / len(same),
    }
