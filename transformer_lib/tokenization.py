# Collected from book/training/tokenization.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""From text to ids and back, by byte pairs or by words."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)

__all__ = [
    "BOS",
    "BPETokenizer",
    "EOS",
    "PAD",
    "SPECIAL",
    "UNK",
    "WordTokenizer",
    "merges",
    "train_bpe",
]


PAD = 0
UNK = 1
BOS = 2
EOS = 3
SPECIAL = ["<pad>", "<unk>", "<bos>", "<eos>"]


def merges(
    symbols: Iterable[str],
    ranks: dict[tuple[str, str], int],
    dropout: float = 0.0,
    chance: random.Random | None = None,
) -> Iterator[list[str]]:
    """Merge neighbours, the earliest learnt pair first, to the end.

    Args:
        symbols: what a word is made of at the start.
        ranks: the learnt pairs, in the order they were learnt.
        dropout: the chance that a pair is passed over in a step.
        chance: draws for the dropout.

    Yields:
        The symbols at the start and after every merge.

    Chapter: tokenization-merges
    """
    symbols, chance = list(symbols), chance or random.Random(0)
    while True:
        yield symbols
        found = [
            (ranks[pair], place)
            for place, pair in enumerate(pairwise(symbols))
            if pair in ranks
            and not (dropout and chance.random() < dropout)
        ]
        if not found:
            return
        _, i = min(found)
        merged = symbols[i] + symbols[i + 1]
        symbols = [*symbols[:i], merged, *symbols[i + 2 :]]


def _texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list; complain when there are none."""
    listed = [] if isinstance(texts, str) else list(texts)
    if not listed:
        raise ValueError(
            "a tokenizer learns from a list of sentences, got "
            f"{texts!r}"
        )
    return listed


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Count pairs of symbols in texts and learn the most frequent.

    Raises:
        ValueError: if there is no text, or `vocab_size` is under 260.

    Chapter: tokenization-bpe
    """
    texts = _texts(texts)
    if vocab_size < 260:
        raise ValueError(
            f"{vocab_size=} is too small: 256 bytes and 4 special "
            "tokens need 260"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class BPETokenizer:
    """Byte-pair encoding: one vocabulary for any language.

    Every text can be written in bytes, so nothing is unknown, and
    `decode` gives back exactly what `encode` took. A special token
    spelt out in a text is text, and never gets its special id.

    Chapter: tokenization-bpe
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int = 8000
    ) -> "BPETokenizer":
        """Learn a vocabulary; `train_bpe` says what can go wrong."""
        return cls(train_bpe(texts, vocab_size))

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    @cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """The merges in the order they were learnt, from 0."""
        rows = json.loads(self.tokenizer.to_str())["model"]["merges"]
        pairs = (r.split() if isinstance(r, str) else r for r in rows)
        return {tuple(pair): rank for rank, pair in enumerate(pairs)}

    def encode(
        self, text: str, dropout: float = 0.0, seed: int = 0
    ) -> list[int]:
        """The ids of a text, without special tokens.

        With a `dropout`, merges are passed over at random (BPE
        dropout), in the same way for the same `seed`.
        """
        if not dropout:
            return self.tokenizer.encode(text).ids
        chance, ids = random.Random(seed), []
        words = self.tokenizer.pre_tokenizer.pre_tokenize_str(text)
        for word, _ in words:
            *_, last = merges(word, self.ranks, dropout, chance)
            ids += map(self.tokenizer.token_to_id, last)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ones are passed over."""
        kept = [int(id_) for id_ in ids if id_ >= len(SPECIAL)]
        return self.tokenizer.decode(kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token to be read; spaces are shown as ▁."""
        return [
            SPECIAL[i]
            if i < 4
            else self.decode([i]).replace(" ", "▁")
            for i in map(int, ids)
        ]

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON, whole or not at all."""
        _write(Path(path), self.tokenizer.to_str())

    @classmethod
    def load(cls, path: str | Path) -> "BPETokenizer":
        """Read what `save` wrote; anything else is a ValueError."""
        text = Path(path).read_text("utf-8", errors="replace")
        try:
            tokenizer = Tokenizer.from_str(text)
            special = [
                *map(tokenizer.id_to_token, range(len(SPECIAL)))
            ]
            if special != SPECIAL:
                raise ValueError(f"its first tokens are {special}")
        except Exception as error:  # tokenizers raises no other class
            raise ValueError(_not_ours(path, error)) from error
        return cls(tokenizer)


def _write(path: Path, text: str) -> None:
    """Write a file under another name first, so that it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _not_ours(path: str | Path, error: Exception) -> str:
    return (
        f"{path} is not a tokenizer that this class saved ({error}): "
        "save it again, or load it with the class that wrote it"
    )


class WordTokenizer:
    """Whole words by spaCy's rules; one not in the list is unknown.

    The other way to cut a text, with the methods of `BPETokenizer`.
    `decode` puts one space between words, so spaces are lost.

    Chapter: tokenization-words
    """

    def __init__(self, words: list[str], language: str):
        import spacy  # the rules alone: no model is downloaded

        if words[: len(SPECIAL)] != SPECIAL:
            raise ValueError(f"the first words must be {SPECIAL}")
        self.words, self.language = words, language
        self.ids = {word: id_ for id_, word in enumerate(words)}
        self.split = spacy.blank(language).tokenizer

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        language: str,
        vocab_size: int | None = None,
        min_count: int = 1,
    ) -> "WordTokenizer":
        """Keep the commonest words, in all at most `vocab_size`.

        `vocab_size` counts the special tokens too. `language` is
        spaCy's code: "en", "de"...; "xx" for several.
        """
        tokenizer = cls(SPECIAL, language)
        counts = Counter(
            word
            for text in _texts(texts)
            for word in tokenizer.cut(text)
        )
        room = vocab_size and vocab_size - len(SPECIAL)
        if room is not None and room < 1:
            raise ValueError(f"{vocab_size=} has no room for a word")
        kept = [
            w for w, n in counts.most_common(room) if n >= min_count
        ]
        return cls([*SPECIAL, *kept], language)

    def __len__(self) -> int:
        return len(self.words)

    def cut(self, text: str) -> list[str]:
        """The words and signs of a text."""
        return [
            word.text
            for word in self.split(text)
            if not word.is_space
        ]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, no special token but UNK among them."""
        ids = (self.ids.get(word, UNK) for word in self.cut(text))
        return [id_ if id_ >= len(SPECIAL) else UNK for id_ in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The words of ids, a space between; <unk> is shown."""
        kept = (int(id_) for id_ in ids if id_ not in (PAD, BOS, EOS))
        return " ".join(self.words[id_] for id_ in kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token to be read."""
        return [self.words[int(id_)] for id_ in ids]

    def save(self, path: str | Path) -> None:
        """Write the list of words as JSON, whole or not at all."""
        kept = {"language": self.language, "words": self.words}
        _write(Path(path), json.dumps(kept, ensure_ascii=False))

    @classmethod
    def load(cls, path: str | Path) -> "WordTokenizer":
        """Read what `save` wrote; anything else is a ValueError."""
        text = Path(path).read_text("utf-8", errors="replace")
        try:
            kept = json.loads(text)
            return cls(kept["words"], kept["language"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(_not_ours(path, error)) from error
