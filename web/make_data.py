"""Make what the live parts read, from the library and its models.

    python web/make_data.py FOLDER

For every model in `pretrained` FOLDER/NAME gets its three files, as they
ship, and `attention/`: every head's weights for some sentences, as bytes.
`zoom.json` is what the page "One sentence" has from the start, before a
reader opens the model. `index.json` names the models.

What the pages "cover a word" and "decoding" begin with lies in
`web/recorded`: web/record.mjs writes it.
"""

import argparse
import inspect
import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from transformer_book.where import where
from transformer_lib import Translator, load_corpus
from transformer_lib.attention import (
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from transformer_lib.decoding import evaluating, greedy_decode
from transformer_lib.embeddings import BOS, EOS
from transformer_lib.layers import FeedForward
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SENTENCES = ROOT / "web" / "sentences.json"
FILES = {  # any server knows how to send a .bin
    "model.safetensors": "model.bin",
    "config.json": "config.json",
    "tokenizer.json": "tokenizer.json",
}
LANGUAGES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
}
CORPORA = {
    "little_spanish": "little Spanish",
    "multi30k": "Multi30k",
    "tatoeba": "Tatoeba",
}
SEARCHED, EXPLORED = 6, 50  # sentences of a model
ZOOMED = "little-spanish", "I like trees"
# What the page shows beside each level: a function's lines with these words.
LINES: dict[str, list[tuple[Callable, str]]] = {
    "model": [
        (Transformer.hidden, "= self.encode("),
        (Transformer.hidden, "return"),
        (Transformer.project, "return"),
    ],
    "attention": [
        (MultiHeadAttention.forward, "query ="),
        (MultiHeadAttention.forward, "key, value = self."),
        (MultiHeadAttention.split, "return"),
    ],
    "feed_forward": [(FeedForward.forward, "self.w_")],
    "position": [(FeedForward.forward, "self.w_")],
    "i": [(FeedForward.forward, "self.w_1")],
    "y": [(FeedForward.forward, "self.w_2")],
    "head": [
        (scaled_dot_product_attention, "scores ="),
        (scaled_dot_product_attention, "weights = scores"),
    ],
    "row": [(scaled_dot_product_attention, "weights = scores")],
    "cell": [(scaled_dot_product_attention, "scores = query")],
    "values": [(scaled_dot_product_attention, "return")],
    "o": [(scaled_dot_product_attention, "return")],
    "q": [(MultiHeadAttention.forward, "query =")],
    "k": [(MultiHeadAttention.keys_values, "self.w_k")],
    "v": [(MultiHeadAttention.keys_values, "self.w_v")],
}


def models() -> list[Path]:
    """The folders in `pretrained`."""
    weights = sorted(ROOT.glob("pretrained/*/model.safetensors"))
    return [path.parent for path in weights]


def sentences(info: dict) -> dict[str, list[str]]:
    """What to explore, to search and to offer for a model."""
    source, target = info["languages"]
    own = json.loads(SENTENCES.read_text("utf-8"))
    own = own[f"{info['corpus']}-{source}"]
    if info["corpus"] != "little_spanish":
        return {
            "attention": own[:EXPLORED],
            "beams": own[:SEARCHED],
            "examples": own[:4],
        }
    corpus = load_corpus("little_spanish", source, target, "test")
    listed = [pair[0] for pair in corpus]
    step = len(listed) // EXPLORED
    return {"attention": listed[::step][:EXPLORED], **own}


# Attention


def write_attention(
    translator: Translator, texts: list[str], folder: Path
) -> None:
    """A file of bytes a sentence: kind, layer, head, query, key.

    The kinds stand in the order encoder, decoder, cross; a byte is a
    weight times 255.
    """
    folder.mkdir()
    rows, config = [], translator.model.config
    for number, text in enumerate(texts):
        found = translator.attention(text)
        maps = [
            found.maps[f"{stack}.layers.{i}.{kind}_attention"]
            for stack, kind in [
                ("encoder", "self"),
                ("decoder", "self"),
                ("decoder", "cross"),
            ]
            for i in range(config.N)
        ]
        data = b"".join(
            (255 * one).round().to(torch.uint8).numpy().tobytes()
            for one in maps
        )
        (folder / f"{number}.bin").write_bytes(data)
        rows.append(
            {
                "text": text,
                "source": found.source,
                "target": found.target,
                "predicted": found.predicted,
            }
        )
    write_json(folder / "index.json", rows)


# From the model to one number


def lines() -> dict[str, list[dict]]:
    """The lines beside each level: whose they are, and their chapter."""
    return {
        level: [
            {
                "line": line.strip(),
                "of": function.__qualname__,
                "chapter": where(function),
            }
            for function, words in listed
            for line in inspect.getsource(function).splitlines()
            if words in line
        ]
        for level, listed in LINES.items()
    }


def told_of_plurals(
    model: Transformer, tokenizer: Tokenizer
) -> dict[str, float | list[float]]:
    """What the tour of "One sentence" says of *gusta* and *gustan*.

    Returns:
        `gusta`, its probability after *Me*; `courier`, the same with what
        one head brings exchanged by what it brings of one tree; `alone`,
        the same with one vector of the memory exchanged, each in turn;
        `memory`, those of both words with all of it exchanged.
    """
    source_ids, other = (
        torch.tensor([[*tokenizer.encode(text), EOS]])
        for text in ("I like trees", "I like tree")
    )
    translation = tokenizer.encode("Me gustan los árboles")
    begun = torch.tensor([[BOS, *translation[:1]]])
    plural, singular = translation[1], tokenizer.encode("Me gusta")[1]
    courier = model.decoder.layers[1].cross_attention.w_o
    mixed: list[Tensor] = []  # what the heads bring, (1, 2, h * d_v)
    width = courier.in_features // model.config.h
    head = slice(width, 2 * width)  # the second

    def note(part, arguments):
        mixed.append(arguments[0])

    def exchange(part, arguments):
        brought = arguments[0].clone()
        brought[:, 1, head] = mixed[0][:, 1, head]
        return (brought,)

    with evaluating(model):
        hook = courier.register_forward_pre_hook(note)
        exchanged = model(other, begun)[0, 1].softmax(-1)
        hook.remove()
        usual = model(source_ids, begun)[0, 1].softmax(-1)
        hook = courier.register_forward_pre_hook(exchange)
        brought = model(source_ids, begun)[0, 1].softmax(-1)
        hook.remove()
        memory, others = model.encode(source_ids), model.encode(other)
        alone = []
        for place in range(memory.size(1)):
            mixture = memory.clone()
            mixture[:, place] = others[:, place]
            hidden = model.decode(begun, mixture, source_ids)[:, -1]
            found = model.project(hidden)[0].softmax(-1)
            alone.append(found[singular].item())
    return {
        "gusta": usual[singular].item(),
        "courier": brought[singular].item(),
        "alone": alone,
        "memory": [exchanged[singular].item(), exchanged[plural].item()],
    }


def zoomed() -> dict:
    """What is seen before the model is opened: one sentence of one model."""
    name, text = ZOOMED
    translator = Translator.from_pretrained(ROOT / "pretrained" / name, "cpu")
    model, tokenizer = translator.model, translator.tokenizer
    source_ids = torch.tensor(translator.encode([text]))
    best = greedy_decode(model, source_ids)[0][0].ids
    inputs = torch.tensor([[BOS, *best[:-1]]])
    with evaluating(model):
        most = model(source_ids, inputs)[0].softmax(-1).max(-1)
    config = model.config
    return {
        "text": text,
        "said": tokenizer.decode(best),
        "languages": [LANGUAGES[code] for code in translator.languages],
        "source": tokenizer.pieces(source_ids[0].tolist()),
        "target": tokenizer.pieces(inputs[0].tolist()),
        "next": tokenizer.pieces(most.indices.tolist()),
        "sure": [round(share, 4) for share in most.values.tolist()],
        "sizes": {
            "N": config.N,
            "d_model": config.d_model,
            "d_ff": config.d_ff,
            "h": config.h,
            "d_k": config.d_model // config.h,
            "vocab_size": config.vocab_size,
        },
        "norm": config.norm,
        "lines": lines(),
        "model": {"name": name, "bytes": travels(name)},
        "tour": told_of_plurals(model, tokenizer),
    }


# All of it


def travels(name: str) -> int:
    """The bytes of a model's three files."""
    folder = ROOT / "pretrained" / name
    return sum((folder / file).stat().st_size for file in FILES)


def write_json(path: Path, value) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text, "utf-8")


def known_words(info: dict) -> list[str] | None:
    """Every word of the training sentences, where they are ours."""
    if info["corpus"] != "little_spanish":
        return None
    corpus = load_corpus("little_spanish", *info["languages"])
    words = set()
    for source, _ in corpus:
        words |= set(re.findall(r"[^\W_]+", source.lower()))
    return sorted(words)


def make(run: Path, folder: Path) -> dict:
    """All that the pages read about one model; its line in the index."""
    torch.set_num_threads(1)  # two models are made at a time
    folder.mkdir()
    for source, target in FILES.items():
        shutil.copy(run / source, folder / target)
    translator = Translator.from_pretrained(run, "cpu")
    note = json.loads((run / "config.json").read_text("utf-8"))
    config, info = note["model"], note["info"]
    chosen = sentences(info)
    write_attention(translator, chosen["attention"], folder / "attention")
    source, target = (LANGUAGES[code] for code in info["languages"])
    return {
        "name": run.name,
        "title": f"{source} to {target}",
        "corpus": info["corpus"],
        "corpus_title": CORPORA[info["corpus"]],
        "languages": info["languages"],
        "N": config["N"],
        "h": config["h"],
        "bytes": travels(run.name),
        "words": known_words(info),
        "examples": chosen["examples"],
        "beams": chosen["beams"],
        "translated": translator.translate(chosen["examples"][0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True)
    folders = [folder / run.name for run in models()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(make, models(), folders))
    write_json(folder / "zoom.json", zoomed())
    write_json(folder / "index.json", {"models": found})


if __name__ == "__main__":
    main()
