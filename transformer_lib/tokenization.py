# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From text to ids and back, by byte pairs.

Chapter: book/training/tokenization
"""

import json
from collections.abc import Iterable, Iterator
from operator import index
from pathlib import Path
from typing import Protocol, runtime_checkable

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel

from transformer_lib.corpora import as_path
from transformer_lib.embeddings import BOS, EOS, PAD, UNK

_SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<bos>", EOS: "<eos>"}


# Soft hyphen, zero-width space, marks of direction, word joiner, BOM.
_HIDDEN = r"\u00AD\u200B\u200E\u200F\u202A-\u202E\u2060\u2066-\u2069\uFEFF"

_NORMALIZER = normalizers.Sequence(
    [
        normalizers.Replace(Regex(f"[{_HIDDEN}]"), ""),
        normalizers.NFC(),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]
)


def normalize(text: str) -> str:
    """One form for texts that look the same: what a model can write.

    Chapter: tokenization-bpe
    """
    return _NORMALIZER.normalize_str(checked_text(text))


class BPETokenizer:
    """Byte-pair encoding: one vocabulary for any language, sec. 5.1.

    Every text can be written in bytes, so nothing is unknown, and
    `decode` gives back the normalized text that was encoded. A special
    token spelt out in a text is text, and never gets its special id.
    `tokenizer` is the Hugging Face `Tokenizer` that does the work; all
    of this is in its file, so any program that reads the file gives
    the same ids.

    Raises:
        ValueError: if `tokenizer` gives the special tokens other ids,
            or would find them in a text.

    Chapter: tokenization-bpe
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        remedy = "use a tokenizer that BPETokenizer.train made"
        for i, token in _SPECIAL.items():
            if tokenizer.token_to_id(token) != i:
                raise ValueError(f"{token} is not token {i}: {remedy}")
        if found := tokenizer.get_added_tokens_decoder():
            names = [token.content for token in found.values()]
            raise ValueError(f"{names} would be read in a text: {remedy}")
        self.tokenizer = tokenizer

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int = 8000
    ) -> "BPETokenizer":
        """Learn the most frequent pairs of symbols in some texts.

        Raises:
            TypeError: for a single text, or what is none.
            ValueError: if `vocab_size` is below 260: the bytes and the
                special tokens.
        """
        if vocab_size < 256 + len(_SPECIAL):
            raise ValueError(f"{vocab_size=}: give at least 260")
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.normalizer = _NORMALIZER
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[*_SPECIAL.values()],
            initial_alphabet=sorted(ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(checked_texts(texts), trainer)
        # The trainer adds the special tokens to the vocabulary, and also
        # to the list of those that are found in a text: they are not.
        description = json.loads(tokenizer.to_str())
        description["added_tokens"] = []
        return cls(tokenizers.Tokenizer.from_str(json.dumps(description)))

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens.

        Raises:
            TypeError: if it is not a str.
        """
        return self.tokenizer.encode(checked_text(text)).ids

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of many texts, encoded on all cores.

        Raises:
            TypeError: for a single text, or what is none.
        """
        texts = [*checked_texts(texts)]
        encodings = self.tokenizer.encode_batch_fast(texts)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without the special tokens.

        Raises:
            TypeError: for what are no whole numbers, such as a text.
            ValueError: for an id that is none of this tokenizer's.
        """
        kept = [i for i in self._checked_ids(ids) if i not in _SPECIAL]
        return self.tokenizer.decode(kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token as readable text.

        Spaces are shown as ▁, and bytes that are only part of a
        character as �.

        Raises:
            TypeError, ValueError: as `decode`.
        """
        texts = (self.tokenizer.decode([i]) for i in self._checked_ids(ids))
        return [text.replace(" ", "▁") for text in texts]

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        numbers, size = [index(i) for i in ids], len(self)
        for number in numbers:
            if not 0 <= number < size:
                raise ValueError(
                    f"there is no id {number}, as this tokenizer has 0 to "
                    f"{size - 1}: is it another model's?"
                )
        return numbers

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON."""
        path = as_path(path).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")  # never half a file
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
            ValueError: if it is not a tokenizer that `save` wrote.
        """
        content = as_path(path).read_bytes()
        try:
            return cls(tokenizers.Tokenizer.from_buffer(content))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Each text by `checked_text`; refuses one, or a dict, for a list.

    Chapter: tokenization-bpe
    """
    if isinstance(texts, str | dict | None):
        raise TypeError(f"one text, {texts!r:.50}: give a list of texts")
    return map(checked_text, texts)


def checked_text(text: str) -> str:
    """The same text; half a character, which no file holds, is U+FFFD.

    Raises:
        TypeError: for what is no str.

    Chapter: tokenization-bpe
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.50} is not a text: give a str")
    content = text.encode("utf-16", "surrogatepass")
    return content.decode("utf-16", "replace")


@runtime_checkable
class Tokenizer(Protocol):
    """What a tokenizer of your own must have.

    Ids 0 to 3 are pad, unk, bos and eos. All others belong to text.

    Chapter: tokenization-own
    """

    def __len__(self) -> int:
        """All tokens, special ones too: the model's vocab_size."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without pad, bos and eos."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without the special tokens."""
