# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From text to ids and back, by byte pairs.

Chapter: book/training/tokenization
"""

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from transformer_lib.embeddings import BOS, EOS, PAD, UNK

SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<bos>", EOS: "<eos>"}


class BPETokenizer:
    """Byte-pair encoding: one vocabulary for any language, sec. 5.1.

    Every text can be written in bytes, so nothing is unknown, and
    `decode` gives back exactly what `encode` took. A special token
    spelt out in a text is text, and never gets its special id.
    `tokenizer` is the Hugging Face `Tokenizer` that does the work.

    Chapter: tokenization-bpe
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True

    @classmethod
    def train(cls, texts, vocab_size: int = 8000) -> "BPETokenizer":
        """Learn the most frequent pairs of symbols in some texts.

        Raises:
            ValueError: if there is no text, one has more than 10,000
                characters, or `vocab_size` is not 260 to a million.
        """
        texts = iter(() if isinstance(texts, str) else texts)
        first = [*islice(texts, 1)]
        if not first:
            raise ValueError("there are no texts to learn from")
        if not 256 + len(SPECIAL) <= vocab_size <= 10**6:
            raise ValueError(f"{vocab_size=}: give 260 to 1000000")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
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
            ValueError: if it has more than 10,000 characters.
        """
        return self.tokenizer.encode(_sentence(text)).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special ones are passed over."""
        kept = [int(i) for i in ids if int(i) not in SPECIAL]
        return self.tokenizer.decode(kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token to be read; spaces are shown as ▁."""
        return [
            SPECIAL.get(i) or self.decode([i]).replace(" ", "▁")
            for i in map(int, ids)
        ]

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(self.tokenizer.to_str(), "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "BPETokenizer":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is no tokenizer that `save` wrote.
        """
        content = Path(path).read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        first = {i: tokenizer.id_to_token(i) for i in SPECIAL}
        if first != SPECIAL or tokenizer.normalizer:
            raise ValueError(
                f"{path} is of another make: use BPETokenizer.train"
            )
        return cls(tokenizer)


def _sentence(text: str) -> str:
    """A text; or an error, if it is too long to be a sentence.

    Chapter: tokenization-bpe
    """
    if len(text) > 10_000:
        raise ValueError(
            f"{len(text)} characters > 10,000: cut into sentences"
        )
    return text
