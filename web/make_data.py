"""Make what the live parts read, from the library and its models.

    python web/make_data.py FOLDER

For every model in `pretrained` FOLDER/NAME gets

- `encoder.onnx.gz`, `decoder.onnx.gz`, `tokenizer.json.gz`: the model,
- `attention/`: every head's weights for some sentences, as bytes,
- `beams/`: beam searches, step by step.

`cover.json` is what the first page opens with: a few sentences, and what
the model writes when one word after the other is hidden from its decoder.
`play.json` is what the chapter on decoding plays: a few sentences, decoded
token by token, with the likeliest rivals of each and what they would have
led to.
`zoom/` is what the page "One sentence" opens, from the model down to one
number: its vectors, queries, keys, values, scores and weights for one
sentence, and a file for each head's three matrices and for each
feed-forward network's two.
`index.json` names them all. What is replayed here is computed again with
the library's own `beam_search`, and has to be the same.
"""

import argparse
import gzip
import inspect
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx
import torch
import yaml
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib import Translator, load_corpus
from transformer_lib.attention import (
    MultiHeadAttention,
    attention,
    record_attention,
)
from transformer_lib.beams import beam_search, length_divisor
from transformer_lib.decoding import (
    DecoderCache,
    evaluating,
    greedy_decode,
    next_log_probabilities,
)
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.export import export_model
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
)
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SENTENCES = ROOT / "web" / "sentences.yml"
LANGUAGES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
}
CORPORA = {
    "little_spanish": "little Spanish",
    "multi30k": "Multi30k",
    "tatoeba": "Tatoeba",
}
BEAM_SIZES = [2, 4]
ALPHAS = [0.0, 0.6, 1.0]
REPLAYED, EXPLORED = 6, 50
RIVALS = 2, 3  # of a step that plays: at least, at most
SERIOUS = 0.02  # what the third of them needs
ZOOMED = "little-spanish", "I like trees"
# What the page shows beside each level: the library's own lines.
LINES: dict[str, list[tuple[Callable, str]]] = {
    "model": [
        (Transformer.hidden, "memory = self.encode(source_ids)"),
        (
            Transformer.hidden,
            "return self.decode(target_ids, memory, source_ids)",
        ),
        (Transformer.project, "return self.pre_softmax(hidden)"),
    ],
    "encoder": [
        (Encoder.forward, "for layer in self.layers:"),
        (Encoder.forward, "    x = layer(x, mask)"),
    ],
    "decoder": [
        (
            Decoder.forward,
            "for layer, own in zip(self.layers, caches, strict=True):",
        ),
        (
            Decoder.forward,
            "x = layer(x, memory, source_mask, target_mask, own, is_causal)",
        ),
    ],
    "encoder layer": [
        (
            EncoderLayer.forward,
            "x = first(x, lambda x: self.self_attention(x, x, mask))",
        ),
        (EncoderLayer.forward, "return second(x, self.feed_forward)"),
    ],
    "decoder layer": [
        (
            DecoderLayer.forward,
            "return own(x, seen, target_mask, is_causal, offset)",
        ),
        (
            DecoderLayer.forward,
            "lambda x: across(x, source, source_mask, offset=offset)",
        ),
        (DecoderLayer.forward, "return third(x, self.feed_forward)"),
    ],
    "attention": [
        (
            MultiHeadAttention.forward,
            "query = self.place(self.split(self.w_q(x)), offset)",
        ),
        (MultiHeadAttention.forward, "key, value = self.keys_values(memory)"),
        (
            MultiHeadAttention.split,
            "return x.unflatten(-1, (self.h, -1)).transpose(1, 2)",
        ),
    ],
    "feed_forward": [
        (FeedForward.forward, "inner = self.w_1(x).relu()"),
        (FeedForward.forward, "return self.w_2(self.dropout(inner))"),
    ],
    "position": [
        (FeedForward.forward, "inner = self.w_1(x).relu()"),
        (FeedForward.forward, "return self.w_2(self.dropout(inner))"),
    ],
    "i": [(FeedForward.forward, "inner = self.w_1(x).relu()")],
    "y": [(FeedForward.forward, "return self.w_2(self.dropout(inner))")],
    "head": [
        (attention, "scores = query @ key.mT / math.sqrt(d_k)"),
        (attention, "scores = scores.masked_fill(~mask, lowest)"),
        (attention, "weights = scores.softmax(dim=-1)"),
    ],
    "row": [(attention, "weights = scores.softmax(dim=-1)")],
    "cell": [(attention, "scores = query @ key.mT / math.sqrt(d_k)")],
    "values": [(attention, "return weights @ value, weights")],
    "o": [(attention, "return weights @ value, weights")],
    "q": [
        (
            MultiHeadAttention.forward,
            "query = self.place(self.split(self.w_q(x)), offset)",
        ),
    ],
    "k": [
        (
            MultiHeadAttention.keys_values,
            "key, value = self.w_k(memory), self.w_v(memory)",
        ),
    ],
    "v": [
        (
            MultiHeadAttention.keys_values,
            "key, value = self.w_k(memory), self.w_v(memory)",
        ),
    ],
}


def models() -> list[Path]:
    """The folders in `pretrained`."""
    weights = sorted(ROOT.glob("pretrained/*/model.safetensors"))
    return [path.parent for path in weights]


def sentences(info: dict) -> dict[str, list[str]]:
    """What to explore, to replay and to offer for a model."""
    source, target = info["languages"]
    own = yaml.safe_load(SENTENCES.read_text("utf-8"))
    if info["corpus"] != "little_spanish":
        listed = own.get(f"{info['corpus']}-{source}", [])
        return {
            "attention": listed[:EXPLORED],
            "beams": listed[:REPLAYED],
            "examples": listed[:4],
        }
    corpus = load_corpus("little_spanish", source, target, "test")
    listed = [pair[0] for pair in corpus]
    step = len(listed) // EXPLORED
    named = own.get(f"little_spanish-{source}", {})
    return {
        "attention": listed[::step][:EXPLORED],
        "beams": named.get("beams", listed[1:7]),
        "examples": named.get("examples", listed[:4]),
    }


# The model: its two graphs and its tokenizer


def write_model(translator: Translator, folder: Path) -> dict[str, int]:
    """What `export_model` writes, with its weights halved, packed.

    Returns:
        The bytes of each file as they travel to a reader.
    """
    export_model(translator, folder, to="onnx")
    for path in folder.glob("*.onnx"):
        onnx.save(halved(onnx.load(path)), path)
    names = ["encoder.onnx", "decoder.onnx", "tokenizer.json"]
    return {name: packed(folder / name) for name in names}


def packed(path: Path) -> int:
    """Pack a file, PATH.gz in its place; returns its bytes."""
    data = gzip.compress(path.read_bytes(), mtime=0)
    path.with_name(f"{path.name}.gz").write_bytes(data)
    path.unlink()
    return len(data)


def halved(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Keep weights that are exact in 16 bits in 16 bits.

    Shipped weights are: the file halves, and no number changes, since
    the graph widens them again before it uses them.
    """
    casts = []
    for tensor in graph.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < 1000:
            continue
        small = values.astype(np.float16)
        if not np.array_equal(small.astype(np.float32), values):
            continue
        name = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(small, f"{name}_half"))
        casts.append(
            onnx.helper.make_node(
                "Cast",
                [f"{name}_half"],
                [name],
                to=onnx.TensorProto.FLOAT,
            )
        )
    nodes = [*casts, *graph.graph.node]
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    del graph.graph.value_info[:]
    return graph


# Attention


def write_attention(
    translator: Translator, texts: list[str], folder: Path
) -> list[dict]:
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
    return rows


# Beam search, replayed


@torch.inference_mode()
def next_tokens(
    model: nn.Module,
    memory: Tensor,
    source_ids: Tensor,
    beginnings: list[list[int]],
) -> Tensor:
    """Log-probabilities (rows, vocab_size) after some beginnings."""
    rows = len(beginnings)
    hidden = model.decode(
        torch.tensor(beginnings),
        memory.expand(rows, -1, -1),
        source_ids.expand(rows, -1),
    )
    gains = model.project(hidden[:, -1]).log_softmax(-1)
    gains[:, [PAD, BOS]] = -torch.inf
    return gains


def replay(
    translator: Translator, text: str, beam_size: int, alpha: float
) -> dict:
    """A beam search with everything it looked at.

    Each step lists candidates [parent, token, log-probability of the
    token, of all, fate]; the parent is a place among the candidates of
    the step before, the fate 0 dropped, 1 kept, 2 ended.
    """
    model = translator.model
    source_ids = torch.tensor(translator.encode([text]))
    with torch.inference_mode():
        memory = model.encode(source_ids)
    limit = source_ids.size(1) - 1 + 50
    beams = [([BOS], 0.0, 0)]
    steps, ended, why = [], [], ""
    while not why:
        ids = [one[0] for one in beams]
        gains = next_tokens(model, memory, source_ids, ids)
        totals = gains + torch.tensor([[one[1]] for one in beams])
        count = min(2 * beam_size, int(totals.isfinite().sum()))
        places = totals.flatten().topk(count).indices.tolist()
        step, following = [], []
        for rank, place in enumerate(places):
            row, token = divmod(place, gains.size(1))
            begun, _, parent = beams[row]
            total = totals[row, token].item()
            fate = 0
            if token == EOS and rank < beam_size:
                score = total / length_divisor(len(begun), alpha)
                ended.append((True, score, total, [*begun[1:], EOS]))
                fate = 2
            elif token != EOS and len(following) < beam_size:
                following.append(([*begun, token], total, rank))
                fate = 1
            gain = gains[row, token].item()
            step.append(
                [
                    parent,
                    translator.tokenizer.pieces([token])[0],
                    round(gain, 4),
                    round(total, 4),
                    fate,
                ]
            )
        steps.append(step)
        beams = following
        if len(ended) >= beam_size:
            why = "enough"
        elif len(beams[0][0]) - 1 >= limit:
            why = "limit"
            for (
                ids,
                total,
                _,
            ) in beams:  # cut off, so they rank behind
                score = total / length_divisor(limit, alpha)
                ended.append((False, score, total, ids[1:]))
    ended.sort(key=lambda one: one[:2], reverse=True)
    found = ended[:beam_size]
    compare(translator, source_ids, beam_size, alpha, found)
    return {
        "beam": beam_size,
        "alpha": alpha,
        "steps": steps,
        "why": why,
        "found": [
            [
                translator.tokenizer.decode(ids),
                len(ids),
                round(total, 4),
                round(score, 4),
            ]
            for _, score, total, ids in found
        ],
    }


def compare(translator, source_ids, beam_size, alpha, found) -> None:
    """The replay has to find what the library's search finds.

    Scores are compared rather than tokens: two hypotheses that are
    equally good up to rounding may stand in either order.
    """
    (whole,) = beam_search(translator.model, source_ids, beam_size, alpha)
    scores = [score for _, score, _, _ in found]
    wanted = [hypothesis.score for hypothesis in whole]
    same = len(scores) == len(wanted)
    if not same or not np.allclose(scores, wanted, atol=1e-3):
        raise RuntimeError(
            f"the replay found {found}, beam_search {whole}: "
            "web/make_data.py no longer does what the library does"
        )


def greedy(translator: Translator, text: str) -> dict:
    """The greedy search, with the log-probability of each token."""
    model = translator.model
    source_ids = torch.tensor(translator.encode([text]))
    with torch.inference_mode():
        memory = model.encode(source_ids)
    ids, rows, total = [BOS], [], 0.0
    while ids[-1] != EOS and len(ids) <= source_ids.size(1) + 49:
        gains = next_tokens(model, memory, source_ids, [ids])[0]
        token = int(gains.argmax())
        gain = gains[token].item()
        total += gain
        ids.append(token)
        rows.append([translator.tokenizer.pieces([token])[0], round(gain, 4)])
    return {
        "text": translator.tokenizer.decode(ids),
        "tokens": rows,
        "total": round(total, 4),
    }


def write_beams(
    translator: Translator, texts: list[str], folder: Path
) -> None:
    folder.mkdir()
    for number, text in enumerate(texts):
        ids = translator.encode([text])[0]
        shown = {
            "text": text,
            "source": translator.tokenizer.pieces(ids),
            "greedy": greedy(translator, text),
            "searches": [
                replay(translator, text, size, alpha)
                for size in BEAM_SIZES
                for alpha in ALPHAS
            ],
        }
        write_json(folder / f"{number}.json", shown)
    write_json(folder / "index.json", texts)


# A word covered


def words(pieces: list[str]) -> list[list[int]]:
    """The places of each word's tokens; punctuation belongs to none."""
    found: list[list[int]] = []
    inside = False
    for place, piece in enumerate(pieces):
        is_word = piece != "<eos>" and any(map(str.isalnum, piece))
        if is_word and inside and not piece.startswith("▁"):
            found[-1].append(place)
        elif is_word:
            found.append([place])
        inside = is_word
    return found


@torch.inference_mode()
def covered(
    model: nn.Module, source_ids: Tensor, places: list[int]
) -> tuple[list[int], Tensor]:
    """What is written if the decoder may not look at some places.

    Returns:
        The ids, with eos, and the cross-attention, the mean of all layers
        and heads (tokens, source_len).
    """
    memory = model.encode(source_ids)  # the encoder reads every word
    visible = source_ids.clone()
    visible[0, places] = PAD  # the decoder's mask has these places closed
    longest = source_ids.size(1) - 1 + 50  # section 6.1, without eos
    ids = [BOS]
    with evaluating(model):
        while ids[-1] != EOS and len(ids) <= longest:
            hidden = model.decode(torch.tensor([ids]), memory, visible)
            ids.append(int(model.project(hidden[:, -1]).argmax()))
        with record_attention(model) as maps:
            model.decode(torch.tensor([ids[:-1]]), memory, visible)
    cross = [
        weights[0].mean(0)
        for path, weights in maps.items()
        if path.endswith("cross_attention")
    ]
    return ids[1:], torch.stack(cross).mean(0)


def covering(translator: Translator, text: str, means: dict) -> dict:
    """A sentence, and what becomes of it when each word is covered.

    A state has the covered places of the source, the translation, its
    tokens, and their cross-attention in hundredths; `means` says in
    English what a translation says, written by hand.
    """
    tokenizer = translator.tokenizer
    source_ids = torch.tensor(translator.encode([text]))
    source = tokenizer.pieces(source_ids[0].tolist())
    states = []
    for places in [[], *words(source)]:
        ids, looked = covered(translator.model, source_ids, places)
        said = tokenizer.decode(ids)
        states.append(
            {
                "covered": places,
                "said": said,
                "means": means.get(said, ""),
                "tokens": tokenizer.pieces(ids),
                "looked": (100 * looked).round().int().tolist(),
            }
        )
    return {
        "text": text,
        "languages": [LANGUAGES[code] for code in translator.languages],
        "codes": translator.languages,
        "source": source,
        "states": states,
    }


def write_cover(path: Path) -> None:
    """What the first page opens with, as `sentences.yml` lists it."""
    found = []
    for one in yaml.safe_load(SENTENCES.read_text("utf-8"))["cover"]:
        run = ROOT / "pretrained" / one["model"]
        translator = Translator.from_pretrained(run, "cpu")
        state = covering(translator, one["text"], one["means"])
        found.append(
            {
                "model": one["model"],
                "opens_on": one.get("opens_on"),
                **state,
            }
        )
    write_json(path, found)


# Decoding that plays by itself


def continued(
    model: nn.Module, source_ids: Tensor, begun: list[int]
) -> list[int]:
    """The greedy output that begins so: ids, with eos."""
    limit = source_ids.size(1) - 1 + 50  # section 6.1, without eos
    ids = list(begun)
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        for last in [BOS, *begun]:
            log_p = next_log_probabilities(
                model, torch.tensor([last]), source_ids, cache
            )
        while ids[-1:] != [EOS] and len(ids) < limit:
            ids.append(int(log_p.argmax()))
            log_p = next_log_probabilities(
                model, torch.tensor(ids[-1:]), source_ids, cache
            )
    return ids


def looked_at(
    model: nn.Module, source_ids: Tensor, ids: list[int]
) -> tuple[Tensor, Tensor]:
    """Of each token of an output: what else could have come, and why.

    Returns:
        Probabilities (tokens, vocab_size), and the cross-attention, the
        mean of all layers and heads (tokens, source_len).
    """
    inputs = torch.tensor([[BOS, *ids[:-1]]])
    with evaluating(model), record_attention(model) as maps:
        logits = model(source_ids, inputs)[0]
    cross = [
        weights[0].mean(0)
        for path, weights in maps.items()
        if path.endswith("cross_attention")
    ]
    return logits.softmax(-1), torch.stack(cross).mean(0)


def played(translator: Translator, text: str) -> dict:
    """One sentence's decoding, and where each rival would have led.

    A step is [bars, attention]: bars are a place in `tokens` and a
    probability in thousandths, in turn, the one taken first; attention
    is in hundredths. The model's own steps hold a third thing: of each
    rival [translation, the steps that follow it].
    """
    model, tokenizer = translator.model, translator.tokenizer
    source_ids = torch.tensor(translator.encode([text]))
    best = greedy_decode(model, source_ids)[0][0].ids
    if continued(model, source_ids, []) != best:
        raise RuntimeError(f"not the library's greedy decoding: {text}")
    table: dict[int, int] = {}  # a token's place, by its id

    def steps(ids: list[int], most_rivals: int) -> list[list]:
        found = []
        for row, looked in zip(
            *looked_at(model, source_ids, ids), strict=True
        ):
            bars = []
            most = row.topk(most_rivals + 1)
            for rank, token in enumerate(most.indices.tolist()):
                share = row[token].item()
                if rank <= RIVALS[0] or share >= SERIOUS:
                    place = table.setdefault(token, len(table))
                    bars += [place, round(1000 * share)]
            found.append([bars, (100 * looked).round().int().tolist()])
        return found

    own = steps(best, RIVALS[1])
    for number, step in enumerate(own):
        ids = list(table)
        rivals = [ids[place] for place in step[0][2::2]]
        lines = []
        for rival in rivals:
            line = continued(model, source_ids, [*best[:number], rival])
            follow = steps(line, RIVALS[0])[number + 1 :]
            lines.append([tokenizer.decode(line), follow])
        step.append(lines)
    names = [LANGUAGES[code] for code in translator.languages]
    return {
        "text": text,
        "languages": names,
        "source": tokenizer.pieces(source_ids[0].tolist()),
        "vocabulary": len(tokenizer),
        "tokens": tokenizer.pieces(list(table)),
        "said": tokenizer.decode(best),
        "steps": own,
    }


def write_play(path: Path) -> None:
    """What the chapter on decoding plays, as `sentences.yml` lists it."""
    listed = yaml.safe_load(SENTENCES.read_text("utf-8"))["play"]
    found = []
    for name, texts in listed.items():
        translator = Translator.from_pretrained(
            ROOT / "pretrained" / name, "cpu"
        )
        found += [played(translator, text) for text in texts]
    write_json(path, found)


# From the model to one number


def lines() -> dict[str, list[dict]]:
    """The lines beside each level: whose they are, and their chapter.

    Raises:
        RuntimeError: if the library has no such line.
    """
    found: dict[str, list[dict]] = {}
    for level, listed in LINES.items():
        found[level] = []
        for function, line in listed:
            if line not in inspect.getsource(function):
                raise RuntimeError(
                    f"{function.__qualname__} has no line {line!r}: "
                    "write the new one into LINES of web/make_data.py"
                )
            found[level].append(
                {
                    "line": line,
                    "of": function.__qualname__,
                    "chapter": chapter(function),
                }
            )
    return found


def chapter(function: Callable) -> str:
    """The place in the book that defines a function or a method."""
    module = inspect.getmodule(function)
    owner = getattr(module, function.__qualname__.partition(".")[0])
    names = [
        re.search(r"Chapter: (\S+)", thing.__doc__)[1]
        for thing in (module, owner)
    ]
    return "{}.html#{}".format(*names)


def taken_in(
    model: nn.Module, source_ids: Tensor, inputs: Tensor
) -> tuple[dict[str, tuple], Tensor]:
    """What each part of the model was given in one run, and its logits.

    Layers are named "encoder.layers.0", what is in them
    "encoder.layers.0.self_attention". The stack's own output has the
    stack's name, a layer's the layer's with ".out".
    """
    given: dict[str, tuple] = {}
    hooks = []

    def keep(path: str, out: bool) -> None:
        def before(module, arguments, named):
            taken = inspect.signature(module.forward).bind(*arguments, **named)
            taken.apply_defaults()
            given[path] = taken.args

        def after(module, arguments, output):
            given[f"{path}.out"] = (output,)

        part = model.get_submodule(path)
        hooks.append(part.register_forward_pre_hook(before, with_kwargs=True))
        if out:
            hooks.append(part.register_forward_hook(after))

    for path, _ in model.named_modules():
        steps = path.split(".")
        if steps[0] in ("encoder", "decoder") and steps[1:2] != ["norm"]:
            last = steps[-1]
            if len(steps) == 1 or last.isdigit() and len(steps) == 3:
                keep(path, out=True)
            elif last.endswith("attention") or last == "feed_forward":
                keep(path, out=False)
    try:
        logits = model(source_ids, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return given, logits


def looked_into(
    part: MultiHeadAttention, arguments: tuple, weights: Tensor
) -> dict[str, Tensor]:
    """The numbers of one attention, as the library computed them.

    Returns:
        `q`, `k` and `v` (h, len, d_k), `score` and `weight` (h, query_len,
        key_len), `may` (query_len, key_len), 1 where one may look.

    Raises:
        RuntimeError: if they do not lead to the weights recorded.
    """
    x, memory, mask, *_ = arguments
    query = part.split(part.w_q(x))[0]
    key, value = (found[0] for found in part.keys_values(memory))
    scores = query @ key.mT / math.sqrt(query.size(-1))
    may = torch.ones_like(scores[0], dtype=torch.bool)
    if mask is not None:
        may = mask[0, 0].expand_as(may)
    _, again = attention(query, key, value, may)
    if not torch.allclose(again, weights[0], atol=1e-5):
        raise RuntimeError("these scores do not lead to the model's weights")
    return {
        "q": query,
        "k": key,
        "v": value,
        "score": scores,
        "weight": weights[0],
        "may": may.float(),
    }


def write_zoom(
    folder: Path,
    run: Path = ROOT / "pretrained" / ZOOMED[0],
    text: str = ZOOMED[1],
) -> None:
    """What the page "One sentence" opens, of one model and sentence.

    `numbers.bin` holds arrays of float32, one behind the other, as the
    `arrays` of `index.json` say: [name, shape], in their order. A file
    of a head is W_Q, W_K, then W_V, each (d_k, d_model); one of a
    network is W_1, b_1, W_2 and b_2.
    """
    translator = Translator.from_pretrained(run, "cpu")
    model, tokenizer = translator.model, translator.tokenizer
    if model.config.bias:
        raise RuntimeError("web/live/zoom.js shows projections without bias")
    folder.mkdir()
    source_ids = torch.tensor(translator.encode([text]))
    best = greedy_decode(model, source_ids)[0][0].ids
    inputs = torch.tensor([[BOS, *best[:-1]]])
    with evaluating(model), record_attention(model) as maps:
        given, logits = taken_in(model, source_ids, inputs)
        arrays: dict[str, Tensor] = {}
        for path, arguments in given.items():
            arrays[path] = arguments[0][0]
            if path.endswith("feed_forward"):
                network = model.get_submodule(path)
                first = network.w_1.weight, network.w_1.bias
                second = network.w_2.weight, network.w_2.bias
                write_weights([*first, *second], folder / f"{path}.bin")
            if path not in maps:
                continue
            part = model.get_submodule(path)
            found = looked_into(part, arguments, maps[path])
            arrays |= {f"{path}.{key}": one for key, one in found.items()}
            for head in range(part.h):
                write_head(part, head, folder / f"{path}.{head}.bin")
    config, (h, _, d_k) = model.config, found["q"].shape
    if found["v"].size(-1) != d_k:
        raise RuntimeError("web/live/zoom.js shows values as long as keys")
    data = [one.numpy().astype("<f4").tobytes() for one in arrays.values()]
    (folder / "numbers.bin").write_bytes(b"".join(data))
    most = logits[0].softmax(-1).max(-1)
    index = {
        "text": text,
        "said": tokenizer.decode(best),
        "languages": [LANGUAGES.get(c, c) for c in translator.languages],
        "source": tokenizer.pieces(source_ids[0].tolist()),
        "target": tokenizer.pieces(inputs[0].tolist()),
        "next": tokenizer.pieces(most.indices.tolist()),
        "sure": [round(share, 4) for share in most.values.tolist()],
        "sizes": {
            "N": config.N,
            "d_model": config.d_model,
            "d_ff": config.d_ff,
            "h": h,
            "d_k": d_k,
            "vocab_size": config.vocab_size,
        },
        "norm": config.norm,
        "arrays": [[name, list(one.shape)] for name, one in arrays.items()],
        "lines": lines(),
        "weighs": f"{(run / 'model.safetensors').stat().st_size / 1e6:.1f} MB",
    }
    if (run.name, text) == ZOOMED:
        index["tour"] = told_of_plurals(model, tokenizer)
    write_json(folder / "index.json", index)
    # for other sentences; any server knows how to send a .bin
    shutil.copy(run / "model.safetensors", folder / "model.bin")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(run / name, folder)


def told_of_plurals(
    model: Transformer, tokenizer: Tokenizer
) -> dict[str, float | list[float]]:
    """What the tour of "One sentence" says of *gusta* and *gustan*.

    Returns:
        `gusta`, its probability after *Me*; `courier`, the same with what
        one head brings exchanged by what it brings of one tree; `alone`,
        the same with one vector of the memory exchanged, each in turn;
        `memory`, those of both words with all of it exchanged;
        `products`, those of numbers that the whole run takes.
    """
    source_ids, other = (
        torch.tensor([[*tokenizer.encode(text), EOS]])
        for text in ("I like trees", "I like tree")
    )
    translation = tokenizer.encode("Me gustan los árboles")
    inputs = torch.tensor([[BOS, *translation]])
    begun = inputs[:, :2]
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
        with FlopCounterMode(display=False) as counter:
            usual = model(source_ids, inputs)[0, 1].softmax(-1)
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
        "products": counter.get_total_flops() / 2,
    }


def write_head(part: MultiHeadAttention, head: int, path: Path) -> None:
    """The rows of W_Q, W_K and W_V that make one head's vectors."""
    layers = part.w_q, part.w_k, part.w_v
    rows = [layer.weight.chunk(part.h)[head] for layer in layers]
    write_weights(rows, path)


def write_weights(weights: list[Tensor], path: Path) -> None:
    """Matrices and biases, one behind the other."""
    arrays = [one.detach().numpy().astype("<f4") for one in weights]
    path.write_bytes(b"".join(one.tobytes() for one in arrays))


# All of it


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
    translator = Translator.from_pretrained(run, "cpu")
    note = json.loads((run / "config.json").read_text("utf-8"))
    config, info = note["model"], note["info"]
    chosen = sentences(info)
    travels = write_model(translator, folder)
    write_beams(translator, chosen["beams"], folder / "beams")
    write_attention(translator, chosen["attention"], folder / "attention")
    source, target = (LANGUAGES.get(code, code) for code in info["languages"])
    return {
        "name": run.name,
        "title": f"{source} to {target}",
        "corpus": info["corpus"],
        "corpus_title": CORPORA.get(info["corpus"], info["corpus"]),
        "languages": info["languages"],
        "N": config["N"],
        "h": config["h"],
        "max_length": config["max_length"],
        "bytes": travels,
        "words": known_words(info),
        "examples": chosen["examples"],
        "translated": translator.translate(chosen["examples"][0]),
    }


def used() -> list[str]:
    """The repository's files that the data was made of."""
    modules = [
        Path(module.__file__)
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "transformer_lib"
    ]
    names = "config.json", "model.safetensors", "tokenizer.json"
    shipped = [run / name for run in models() for name in names]
    files = [Path(__file__).resolve(), SENTENCES, *modules, *shipped]
    return [str(path.relative_to(ROOT)) for path in files]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    folders = [folder / run.name for run in models()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(make, models(), folders))
    write_cover(folder / "cover.json")
    write_play(folder / "play.json")
    write_zoom(folder / "zoom")
    write_json(folder / "index.json", {"models": found})
    write_json(folder / "used.json", used())


if __name__ == "__main__":
    main()
