# Collected from book/results/tasks.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""What a training is told: corpus, sizes, recipe, pieces."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from transformer_lib.batching import (
    Batch,
    Ids,
    TokenBatches,
    encode_pairs,
)
from transformer_lib.corpora import (
    ParallelCorpus,
    load_corpus,
    read_parallel,
)
from transformer_lib.model import TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import EOS, BPETokenizer, merges
from transformer_lib.training import preset, table3

__all__ = [
    "RedrawnBatches",
    "Task",
    "read_split",
    "recipe",
    "task_batches",
    "task_tokenizer",
    "word_cuts",
]


_PRESETS = "tiny base big paper tensor2tensor annotated".split()


def _told(default: Any, help: str, choices: Any = None) -> Any:
    about = {"help": help, "choices": choices}
    return field(default=default, metadata=about)


@dataclass
class Task:
    """All that a training is told; each field is an option.

    `changes` holds fields of the two configurations that are to
    differ from the preset's, such as {"dropout": 0.3}.

    Chapter: tasks-task
    """

    out: str = _told("", "folder for all that is written")
    corpus: str = _told("little_spanish", "or multi30k, tatoeba")
    languages: tuple[str, str] = _told(("en", "es"), "source, target")
    source_file: str | None = _told(None, "your own sentences")
    target_file: str | None = _told(None, "their translations")
    validation_source: str | None = _told(None, "to validate on")
    validation_target: str | None = _told(None, "their translations")
    test_source: str | None = _told(None, "to evaluate on")
    test_target: str | None = _told(None, "their translations")
    limit: int | None = _told(None, "only the first so many pairs")
    longest: int = _told(256, "drop pairs of more pieces")
    vocab_size: int = _told(8000, "pieces in the vocabulary")
    bpe_dropout: float = _told(0.0, "chance to pass over a merge")
    preset: str = _told("tiny", "a size or a recipe", _PRESETS)
    table3: str | None = _told(None, "a row, such as 'B: d_k=16'")
    validation_bleu: bool = _told(False, "log BLEU, greedy")
    samples: int = _told(0, "how many translations to log")
    test: str | None = _told(None, "split to evaluate at the end")
    half: bool = _told(False, "save the model in half precision")
    most_mib: float | None = _told(None, "refuse a larger model file")
    name: str = _told("", "what the record is called")
    measures: str = _told("", "what the record is for")
    changes: dict[str, Any] = field(default_factory=dict)


_SMALL = {"tokens_per_batch": 4096, "warmup_steps": 500}
_SMALL |= {"max_steps": 12_000, "validate_every": 200}
_SMALL |= {"checkpoint_every": 20, "log_every": 10}


def _changed(config: Any, task: Task) -> Any:
    """A configuration with the task's changes of its fields."""
    names = {field.name for field in fields(config)}
    given = {k: v for k, v in task.changes.items() if k in names}
    return replace(config, **given)


def recipe(
    task: Task, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """The model and the training that a task asks for.

    A row of table 3, or a preset: a size (tiny, base, big) or a
    recipe (paper, tensor2tensor, annotated). `changes` has the last
    word.

    Chapter: tasks-recipe
    """
    if task.table3:
        pair = table3(task.table3, vocab_size)
    elif task.preset in ("tiny", "base", "big"):
        size = getattr(TransformerConfig, task.preset)
        small = _SMALL if task.preset == "tiny" else {}
        pair = size(vocab_size), TrainingConfig(**small)
    else:
        pair = preset(task.preset, vocab_size)
    return _changed(pair[0], task), _changed(pair[1], task)


def read_split(task: Task, split: str) -> ParallelCorpus | None:
    """A split of the named corpus, or the reader's own files.

    None for own files without a validation part. Own files for the
    test, if there are none, are those of the training: `evaluate`
    names its files so.

    Raises:
        ValueError: for a file without its translations.

    Chapter: tasks-data
    """
    own = [task.source_file, task.target_file]
    if any(own) and split == "validation":
        own = [task.validation_source, task.validation_target]
        if not any(own):
            return None
    if task.test_source and split == "test":
        own = [task.test_source, task.test_target]
    if not any(own):
        corpus = load_corpus(task.corpus, *task.languages, split)
        return corpus[: task.limit]
    if not all(own):
        raise ValueError(
            "give a file of sentences and their translations, not "
            f"{own}"
        )
    return read_parallel(*own, *task.languages)[: task.limit]


def task_tokenizer(
    task: Task, corpus: ParallelCorpus
) -> BPETokenizer:
    """The tokenizer in a task's folder, trained at first.

    Chapter: tasks-data
    """
    path = Path(task.out, "tokenizer.json")
    if not path.is_file():
        texts = [text for pair in corpus for text in pair]
        BPETokenizer.train(texts, task.vocab_size).save(path)
    return BPETokenizer.load(path)


def word_cuts(
    word: str, tokenizer: BPETokenizer, dropout: float, count: int
) -> list[Ids]:
    """Ways to cut a word, as its pre-tokenizer gives it, into ids.

    Drawn with BPE dropout; the same word is cut in the same ways.

    Chapter: tasks-bpe-dropout
    """
    chance, cuts = random.Random(word), []
    for _ in range(count):
        *_, last = merges(word, tokenizer.ranks, dropout, chance)
        cuts.append([*map(tokenizer.tokenizer.token_to_id, last)])
    return cuts


class RedrawnBatches(TokenBatches):
    """Token batches whose words are cut anew in every epoch.

    `pairs` are of the tokenizer's ids, without dropout; `how` is
    what `TokenBatches` takes. The seed and the number of an epoch
    decide how its words are cut; epochs differ in their batches.

    Raises:
        ValueError: if `dropout` is no share, or as `TokenBatches`.

    Chapter: tasks-bpe-dropout
    """

    draws = 16  # ways to cut a word; divides 256

    def __init__(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        tokenizer: BPETokenizer,
        dropout: float,
        *how: Any,
    ):
        if not 0 <= dropout < 1:
            raise ValueError(f"bpe {dropout=} is not in 0 <= p < 1")
        super().__init__(pairs, *how)
        cut = tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str
        cuts: dict[str, list[Ids]] = {}
        self.sides: list[list[list[Ids]]] = []
        for ids in chain.from_iterable(pairs):
            words = [word for word, _ in cut(tokenizer.decode(ids))]
            for word in set(words) - cuts.keys():
                told = tokenizer, dropout, self.draws
                cuts[word] = word_cuts(word, *told)
            self.sides.append([cuts[word] for word in words])

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, with its own cuts of words."""
        chance = random.Random(f"{self.seed} {number} cuts")
        dice = iter(chance.randbytes(sum(map(len, self.sides))))

        def draw(cuts: list[Ids]) -> Ids:
            return cuts[next(dice) % self.draws]

        sides = [
            [*chain.from_iterable(map(draw, words)), EOS]
            for words in self.sides
        ]
        pairs = list(zip(sides[::2], sides[1::2], strict=True))
        how = self.tokens_per_batch, self.seed, self.shuffle
        place = self.rank, self.world_size
        yield from TokenBatches(pairs, *how, *place).epoch(number)


def task_batches(
    task: Task,
    corpus: ParallelCorpus,
    tokenizer: BPETokenizer,
    training: TrainingConfig,
    rank: int = 0,
    workers: int = 1,
) -> TokenBatches:
    """The batches that a worker of a task trains on.

    Chapter: tasks-bpe-dropout
    """
    pairs = encode_pairs(corpus, tokenizer, task.longest)
    how = training.tokens_per_batch, training.seed, True, rank
    if task.bpe_dropout:
        told = tokenizer, task.bpe_dropout, *how, workers
        return RedrawnBatches(pairs, *told)
    return TokenBatches(pairs, *how, workers)
