# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From a text to its translation: the front door of the library.

Chapter: book/translating/translator
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Self, TypeVar, overload
from warnings import warn

import torch
from torch import Tensor, nn

from transformer_lib.attention import record_attention
from transformer_lib.batching import check_pair, encode_texts
from transformer_lib.beams import Translation, decode_all, translate_all
from transformer_lib.checkpoints import load_model, save_model
from transformer_lib.corpora import as_path
from transformer_lib.embeddings import BOS
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    evaluating,
    uncompiled,
)
from transformer_lib.tokenization import Tokenizer, checked_text, checked_texts


def bundled_models() -> dict[str, Path]:
    """Every model that came with the library: {name: folder}.

    An installed wheel carries them in `transformer_lib/pretrained`, a
    checkout of the book in `pretrained`.

    Chapter: translator-models
    """
    package = Path(str(files("transformer_lib")))
    models = package / "pretrained"
    if not models.is_dir():  # in a checkout, the book's are beside it
        models = package.parent / "pretrained"
    weights = sorted(models.glob("*/model.safetensors"))
    return {path.parent.name: path.parent for path in weights}


def find_model(name: str | Path) -> Path:
    """The folder of that name, if it holds a model; or a bundled model's.

    Warns:
        UserWarning: if a folder or file has the name of a bundled model.

    Raises:
        FileNotFoundError: for a name that is neither.

    Chapter: translator-models
    """
    folder, bundled = as_path(name), bundled_models()
    known = isinstance(name, str) and name in bundled
    ours = (folder / "config.json").is_file()
    if known and folder.exists():
        taken = f"the folder ./{name}" if ours else "the bundled model"
        warn(f"{name} is {taken} here, where both are", stacklevel=2)
    if ours or known:
        return folder if ours else bundled[name]
    raise FileNotFoundError(
        f"{str(name)!r} is no folder with a config.json: give the folder of "
        f"a model, or one of {[*bundled]}"
    )


@dataclass(frozen=True)
class AttentionMaps:
    """Every attention of one sentence pair, and what its axes mean.

    `maps` goes from a path such as "decoder.layers.0.cross_attention"
    to weights (h, query_len, key_len). The encoder's axes are both
    `source`. The decoder's queries are its inputs, `target`, which
    begins with bos; `predicted` is what follows each of them.

    Chapter: translator-class
    """

    source: list[str]
    target: list[str]
    predicted: list[str]
    maps: dict[str, Tensor]


_Texts = TypeVar("_Texts", str, list[str])  # back as they came


class Translator:
    """A model and its tokenizer behind one method that takes text.

    A tokenizer of your own needs `__len__`, `encode` and `decode` as
    `BPETokenizer` has them, and `pieces` for `attention`; `save` and
    `export_model` need a `BPETokenizer`. Threads may share a translator whose
    model is in evaluation mode, as a loaded one is.

    Raises:
        TypeError: for languages that are no list or tuple of two, or
            for what is no tokenizer.
        ValueError: if the tokenizer is another model's.

    Chapter: translator-class
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        languages: Sequence[str] = ("", ""),
    ):
        if not isinstance(languages, tuple | list) or len(languages) != 2:
            raise TypeError(f"{languages=}: give two, such as ('de', 'en')")
        check_pair(tokenizer, model)
        self.model = model
        self.tokenizer = tokenizer
        self.languages: tuple[str, ...] = tuple(languages)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        device: torch.types.Device = "cpu",
        *,
        model: Callable[[TransformerConfig], nn.Module] = Transformer,
    ) -> Self:
        """Load a folder that `save` wrote, or a bundled model.

        Args:
            model: builds a model of your own from its sizes, as in
                `load_model`.

        Raises:
            FileNotFoundError: for a name that is neither.
            ValueError: if the folder's files are damaged, it holds no
                tokenizer, or `model` builds another kind of model.
        """
        folder = find_model(name)
        saved = load_model(folder, model)
        if saved.tokenizer is None:
            raise ValueError(
                f"{folder} has no tokenizer.json: take its model by "
                "load_model, and give a tokenizer to Translator"
            )
        languages = saved.info.get("languages", ("", ""))
        return cls(saved.model.to(device), saved.tokenizer, languages)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def to(self, device: torch.types.Device) -> Self:
        """Move the model to a device; returns the translator."""
        self.model.to(device)
        return self

    def save(self, folder: str | Path, half: bool = False) -> None:
        """Write a folder that `from_pretrained` takes.

        Model, tokenizer and languages are written, the weights in
        float16 if `half`.
        """
        info = {"languages": [*self.languages]}
        save_model(folder, self.model, self.tokenizer, half=half, info=info)

    def encode(self, sentences: Iterable[str]) -> list[list[int]]:
        """Ids of each sentence, with eos.

        Raises:
            TypeError: if `sentences` is one string instead of a list.
        """
        return encode_texts(sentences, self.tokenizer)

    @overload
    def translate(
        self,
        sentences: _Texts,
        beam_size: int = ...,
        length_penalty: float = ...,
        n_best: None = ...,
        split: bool = ...,
    ) -> _Texts: ...
    @overload
    def translate(
        self,
        sentences: str | Iterable[str],
        beam_size: int = ...,
        length_penalty: float = ...,
        *,
        n_best: int,
    ) -> list[Translation] | list[list[Translation]]: ...
    def translate(
        self,
        sentences: str | Iterable[str],
        beam_size: int = 4,
        length_penalty: float = 0.6,
        n_best: int | None = None,
        split: bool = False,
    ) -> str | list:
        """Translate a sentence, or a list of them, in the same order.

        A translation is one line. A sentence of only white space stays
        empty. `beam_size=1` is greedy decoding, whose score no penalty
        divides; the defaults are those of section 6.1. `decode_all` has
        further options.

        With `n_best` there is, instead of each text, a list of up to so
        many of `Translation` (text, log-probability, score), best first.

        With `split` a text may hold several sentences, and each of them
        is translated by itself (see `split_sentences`).

        Raises:
            TypeError: for a sentence that is not a string.
            ValueError: as `decode_all`, or if `n_best` is more than the
                beam finds, or given with `split`.
        """
        one = isinstance(sentences, str)
        texts = [sentences] if one else sentences
        if split:
            if n_best is not None:
                raise ValueError("n_best is for one sentence, not with split")
            parts = [split_sentences(x, self.languages[0]) for x in texts]
            results = self.by_sentence(parts, beam_size, length_penalty)
            return results[0] if one else results
        if n_best is not None and not 1 <= n_best <= beam_size:
            raise ValueError(
                f"{n_best=}: a beam of {beam_size} finds up to {beam_size} "
                "translations"
            )
        found = translate_all(
            self.model, self.tokenizer, texts, beam_size, length_penalty
        )
        if n_best is None:
            results = [best.text for best, *_ in found]
        else:
            results = [ranked[:n_best] for ranked in found]
        return results[0] if one else results

    def by_sentence(
        self,
        texts: Sequence[list[str]],
        beam_size: int = 4,
        length_penalty: float = 0.6,
    ) -> list[str]:
        """Texts that are split already; each comes back as one line.

        Raises:
            TypeError: for a text that is not split.
        """
        every = [*chain(*map(checked_texts, texts))]
        found = iter(self.translate(every, beam_size, length_penalty))
        return [" ".join(islice(found, len(parts))) for parts in texts]

    def attention(
        self, source: str, target: str | None = None
    ) -> AttentionMaps:
        """Every head's weights for a sentence and its translation.

        Without a `target` the greedy translation is taken; with one,
        the maps are what the model attends to when it is given that
        translation, as in training.
        """
        model, pieces = uncompiled(self.model), self.tokenizer.pieces
        (source_ids,) = self.encode([source])
        if target is None:
            [[best]] = decode_all(model, [source_ids], beam_size=1)
            labels = best.ids
        else:
            (labels,) = self.encode([target])
        inputs = [BOS, *labels[:-1]]
        with evaluating(model), record_attention(model) as maps:
            model(
                torch.tensor([source_ids], device=self.device),
                torch.tensor([inputs], device=self.device),
            )
        return AttentionMaps(
            source=pieces(source_ids),
            target=pieces(inputs),
            predicted=pieces(labels),
            maps={path: weights[0].cpu() for path, weights in maps.items()},
        )


def split_sentences(text: str, language: str = "") -> list[str]:
    """The sentences of a text, by spaCy's rules for a language.

    Of a language that spaCy doesn't know, full stops, question marks and
    the like are known.

    Raises:
        ImportError: without spaCy.
        TypeError: for what is no str.

    Chapter: translator-paragraphs
    """
    try:
        rules = _rules_of(language)
    except ModuleNotFoundError as error:
        raise ImportError("sentences need spaCy: pip install spacy") from error
    doc = rules(checked_text(text))
    starts = [_with_its_marks(doc, one.start) for one in doc.sents]
    parts = pairwise([*starts, len(doc)])
    sentences = (doc[start:end].text.strip() for start, end in parts)
    return [one for one in sentences if one]


def _with_its_marks(doc: Any, start: int) -> int:
    """Where a sentence starts if what opens it is its own, as in Spanish.

    Chapter: translator-paragraphs
    """
    first = start
    while first and doc[first - 1].is_punct and not doc[first - 1].whitespace_:
        first -= 1
    before = doc[max(first, 1) - 1]
    return first if before.is_space or before.whitespace_ else start


@cache
def _rules_of(language: str) -> Any:
    import spacy

    try:
        rules = spacy.blank(language or "xx")
    except ImportError:  # of a language that it doesn't know
        rules = spacy.blank("xx")
    rules.add_pipe("sentencizer")
    return rules
