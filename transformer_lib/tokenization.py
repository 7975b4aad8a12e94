# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From text to ids and back, by byte pairs.

Chapter: book/training/tokenization
"""

import json
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import tokenizers
from tokenizers import decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from transformer_lib.embeddings import BOS, EOS, PAD, UNK

SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<bos>", EOS: "<eos>"}


class BPETokenizer:
    """Byte-pair encoding: one vocabulary for any language, sec. 5.1.

    Every text can be written in bytes, so nothing is unknown, and
    `decode` gives back exactly what `encode` took. A special token
    spelt out in a text is text, and never gets its special id.
    `tokenizer` is the Hugging Face `Tokenizer` that does the work.

    Raises:
        ValueError: if `tokenizer` differs in anything but its merges
            from what `train` builds.

    Chapter: tokenization-bpe
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        _check_make(tokenizer)
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled or copied, the package's tokenizer forgets that
        # special tokens are text: a copy goes through __init__ too.
        return type(self), (self.tokenizer,)

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int = 8000
    ) -> "BPETokenizer":
        """Learn the most frequent pairs of symbols in some texts.

        Raises:
            TypeError: if `texts` is a single text.
            ValueError: if there is no text, one has more than 10,000
                characters, or `vocab_size` is not 260 to a million.
        """
        if isinstance(texts, str):
            raise TypeError(f"one text, {texts!r:.50}: give a list of texts")
        texts = iter(texts)
        first = list(islice(texts, 1))
        if not first:
            raise ValueError("there are no texts to learn from")
        if not 256 + len(SPECIAL) <= vocab_size <= 10**6:
            raise ValueError(f"{vocab_size=}: give 260 to 1000000")
        tokenizer = _untrained()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[*SPECIAL.values()],
            initial_alphabet=sorted(ByteLevel.alphabet()),
            show_progress=False,
        )
        texts = map(_sentence, chain(first, texts))
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens.

        Raises:
            TypeError: if it is no text.
            ValueError: if it has more than 10,000 characters.
        """
        return self.tokenizer.encode(_sentence(text)).ids

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of many texts, encoded on all cores.

        Raises:
            TypeError: if `texts` is a single text.
            ValueError: if one has more than 10,000 characters.
        """
        if isinstance(texts, str):
            raise TypeError(f"one text, {texts!r:.50}: give a list of texts")
        texts = [_sentence(text) for text in texts]
        encodings = self.tokenizer.encode_batch_fast(texts)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ones are passed over.

        Raises:
            ValueError: for an id that no token has.
        """
        kept = [int(i) for i in ids if int(i) not in SPECIAL]
        if kept and not 0 <= min(kept) <= max(kept) < len(self):
            raise ValueError(
                f"ids {min(kept)} to {max(kept)}, of {len(self)} tokens: "
                "decode with the tokenizer that encoded"
            )
        return self.tokenizer.decode(kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token to be read; spaces are shown as ▁."""
        pieces = []
        for i in map(int, ids):
            text = self.decode([i]).replace(" ", "▁")
            pieces.append(SPECIAL.get(i, text))
        return pieces

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON.

        Raises:
            ValueError: if it was changed, so that `load` would
                refuse it; nothing is written.
        """
        _check_make(self.tokenizer)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # If the disk is full, an older file stays as it was. (The
        # function for this belongs to a later chapter.)
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(self.tokenizer.to_str(), "utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> "BPETokenizer":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is no tokenizer that `save` wrote.
        """
        content = Path(path).read_bytes()
        try:
            return cls(tokenizers.Tokenizer.from_buffer(content))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _sentence(text: str) -> str:
    """A text; or an error, if it is too long to be a sentence.

    Chapter: tokenization-bpe
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.50} is no text")
    if len(text) > 10_000:
        raise ValueError(
            f"{len(text)} characters > 10,000: cut into sentences"
        )
    return text


def _untrained() -> tokenizers.Tokenizer:
    """Bytes and special tokens; nothing is merged yet.

    Chapter: tokenization-bpe
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL.values()])
    return tokenizer


def _check_make(tokenizer: tokenizers.Tokenizer) -> None:
    """Refuse a tokenizer that `BPETokenizer.train` would not build.

    Chapter: tokenization-bpe
    """
    given = json.loads(tokenizer.to_str())
    expected = json.loads(_untrained().to_str())
    merges = given["model"].get("merges", [])
    tokens = [*SPECIAL.values(), *sorted(ByteLevel.alphabet())]
    tokens += ["".join(pair) for pair in merges]
    tokens = dict.fromkeys(tokens)  # two merges may make the same one
    vocab = {token: i for i, token in enumerate(tokens)}
    expected["model"] |= {"vocab": vocab, "merges": merges}
    differing = [part for part in given if given[part] != expected[part]]
    if differing:
        raise ValueError(
            f"of another make, in {differing}: use BPETokenizer.train"
        )


class Tokenizer(Protocol):
    """What a tokenizer of one's own must have.

    Ids 0 to 3 are those of `SPECIAL`. All others belong to text.

    Chapter: tokenization-own
    """

    def __len__(self) -> int:
        """All tokens, special ones too: the model's vocab_size."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without pad, bos and eos."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ones are passed over."""
