# Collected from book/translating/translator.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""From a text to its translation: the front door of the library."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_lib.attention import record_attention
from transformer_lib.beams import beam_search, decode_all
from transformer_lib.checkpoints import load_model
from transformer_lib.decoding import evaluating
from transformer_lib.model import Transformer
from transformer_lib.tokenization import BOS, EOS
from transformer_lib.training import pick_device

__all__ = [
    "AttentionMaps",
    "Translation",
    "Translator",
    "bundled_models",
]


def bundled_models() -> dict[str, Path]:
    """Every model that came with the library: {name: folder}.

    An installed wheel carries them in `transformer_lib/pretrained`, a
    checkout of the book in `runs`.

    Chapter: translator-models
    """
    package = Path(str(files("transformer_lib")))
    return {
        weights.parent.name: weights.parent
        for folder in (
            package.parent / "runs",
            package / "pretrained",
        )
        for weights in sorted(folder.glob("*/model.safetensors"))
    }


@dataclass(frozen=True)
class Translation:
    """One of a sentence's translations, as the search ranked it.

    Chapter: translator-class
    """

    text: str
    score: float
    log_probability: float
    pieces: list[str]


@dataclass(frozen=True)
class AttentionMaps:
    """Every attention of one sentence pair, and what its axes mean.

    `maps` goes from a path such as "decoder.layers.0.cross_attention"
    to weights (h, query_len, key_len). The encoder's axes are both
    `source`. The decoder's queries are its inputs, `target`, which
    begins with bos; `predicted` is what it says at each of them.

    Chapter: translator-class
    """

    source: list[str]
    target: list[str]
    predicted: list[str]
    maps: dict[str, Tensor]


class Translator:
    """A model and its tokenizer behind one method that takes text.

    Sentences longer than `max_pieces` are refused: a model trained on
    sentences translates a page badly, and slowly.

    Chapter: translator-class
    """

    max_pieces = 512

    def __init__(
        self,
        model: Transformer,
        tokenizer: Any,
        languages: tuple[str, str] = ("", ""),
    ):
        self.model, self.tokenizer = model, tokenizer
        self.languages = tuple(languages)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, device: str | None = None
    ) -> "Translator":
        """Load a folder that `save_model` wrote, or a bundled model.

        Raises:
            FileNotFoundError: for a name that is neither; lists
            names.
            ValueError: if the folder's files are damaged.
        """
        bundled = bundled_models()
        if not Path(name).is_dir() and str(name) not in bundled:
            raise FileNotFoundError(
                f"{str(name)!r} is neither a folder "
                "nor a bundled model; bundled are: "
                f"{', '.join(sorted(bundled)) or 'none'}"
            )
        folder = name if Path(name).is_dir() else bundled[str(name)]
        model, tokenizer, info = load_model(folder)
        if tokenizer is None:
            raise FileNotFoundError(
                f"{folder} has a model but no tokenizer: save "
                "it with save_model(folder, model, tokenizer)"
            )
        languages = info.get("languages", ("", ""))
        return cls(
            model.to(pick_device(device)), tokenizer, languages
        )

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence, with eos.

        Raises:
            TypeError: if one of them is no string.
            ValueError: if one has more than `max_pieces` pieces.
        """
        found = []
        for number, sentence in enumerate(sentences, 1):
            if not isinstance(sentence, str):
                raise TypeError(
                    f"sentence {number} is "
                    f"{type(sentence).__name__}, not a string"
                )
            ids = self.tokenizer.encode(sentence.strip())
            if len(ids) > self.max_pieces:
                raise ValueError(
                    f"sentence {number} has {len(ids)} pieces, "
                    f"more than max_pieces={self.max_pieces}: "
                    "split it into sentences, or raise "
                    "max_pieces if you mean it"
                )
            found.append([*ids, EOS])
        return found

    def translate(
        self,
        sentences: str | list[str],
        beam_size: int = 4,
        length_penalty: float = 0.6,
        max_extra: int = 50,
        batch_size: int = 64,
    ) -> str | list[str]:
        """Translate a sentence, or a list of them, in the same order.

        A sentence of white space alone stays empty. `beam_size=1` is
        greedy decoding; the other defaults are those of section 6.1.

        Raises:
            TypeError, ValueError: as `encode` and `beam_search`.
        """
        if isinstance(sentences, str):
            return self.translate(
                [sentences], beam_size, length_penalty, max_extra
            )[0]
        sources = self.encode(list(sentences))
        full = [i for i, ids in enumerate(sources) if len(ids) > 1]
        search = beam_size, length_penalty, max_extra, batch_size
        wanted = [sources[i] for i in full]
        found = decode_all(self.model, wanted, *search)
        texts = [""] * len(sources)
        for i, ids in zip(full, found.ids, strict=True):
            texts[i] = self.tokenizer.decode(ids[0])
        return texts

    def beam(
        self,
        sentence: str,
        beam_size: int = 4,
        length_penalty: float = 0.6,
        max_extra: int = 50,
    ) -> list[Translation]:
        """A sentence's translations, best first: up to `beam_size`.

        Raises:
            TypeError, ValueError: as `encode` and `beam_search`.
        """
        source = torch.tensor(self.encode([sentence]))
        found = beam_search(
            self.model,
            source.to(self.model.output_weight.device),
            beam_size,
            length_penalty,
            max_extra,
        )
        return [
            Translation(
                self.tokenizer.decode(ids),
                score,
                total,
                self.pieces(ids),
            )
            for ids, score, total in zip(
                found.ids[0],
                found.scores[0],
                found.log_probabilities[0],
                strict=True,
            )
        ]

    def pieces(self, ids: list[int]) -> list[str]:
        """Ids as readable pieces, with <bos> and <eos> by name."""
        names = {BOS: "<bos>", EOS: "<eos>"}
        return [
            names[i] if i in names else self.tokenizer.pieces([i])[0]
            for i in ids
        ]

    def attention(
        self, source: str, target: str | None = None
    ) -> AttentionMaps:
        """Every head's weights for a sentence and its translation.

        Without a `target` the greedy translation is taken; with one,
        the maps are what the model attends to when it is made to say
        that.

        Raises:
            TypeError, ValueError: as `encode`.
        """
        source_ids = self.encode([source])[0]
        if target is None:
            found = decode_all(self.model, [source_ids], beam_size=1)
            target_ids = found.ids[0][0]
        else:
            target_ids = self.encode([target])[0]
        inputs = [BOS, *target_ids[:-1]]
        device = self.model.output_weight.device
        with (
            evaluating(self.model),
            record_attention(self.model) as maps,
        ):
            self.model(
                torch.tensor([source_ids], device=device),
                torch.tensor([inputs], device=device),
            )
        return AttentionMaps(
            self.pieces(source_ids),
            self.pieces(inputs),
            self.pieces(target_ids),
            {
                path: weights[0].cpu()
                for path, weights in maps.items()
            },
        )
