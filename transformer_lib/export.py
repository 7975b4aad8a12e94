# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Write a model so that another engine can run it.

Chapter: book/translating/export
"""

import copy
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from transformer_lib.corpora import as_path
from transformer_lib.embeddings import BOS, EOS, PAD, UNK
from transformer_lib.model import Transformer, uncompiled
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import Translator


def _frozen(model: Transformer) -> Transformer:
    """A copy to be read: float32, on the CPU, no dropout.

    Chapter: export-copy
    """
    model = copy.deepcopy(uncompiled(model))
    return model.cpu().float().eval().requires_grad_(False)


def _examples(model: Transformer) -> list[tuple[list[int], list[int]]]:
    """Random ids of some sources, and what might be their translations.

    Chapter: export-copy
    """
    chance = random.Random(0)
    ids = [UNK, *range(EOS + 1, model.config.vocab_size)]
    most = model.config.max_length - 1
    return [
        ([*chance.choices(ids, k=min(n, most)), EOS], chance.choices(ids, k=m))
        for n, m in ((3, min(6, most)), (1, 0), (20, min(9, most)))
    ]


def _check_same(
    model: Transformer,
    score: Callable[[list[int], list[int]], list[float]],
    never: list[int],
    advice: str,
) -> None:
    """Refuse an export whose log-probabilities are not the model's.

    `score` has those of a target's tokens, given a source, as the
    export computes them; the ids `never` are not among its tokens.

    Raises:
        ValueError: if they differ by more than rounding.

    Chapter: export-copy
    """
    for source, target in _examples(model):
        labels = [*target, EOS]
        inputs = torch.tensor([[BOS, *target]])
        logits = model(torch.tensor([source]), inputs)[0]
        logits[:, never] = -torch.inf  # (len, vocab_size)
        wanted = logits.log_softmax(-1)[range(len(labels)), labels]
        off = (torch.tensor(score(source, labels)) - wanted).abs().max()
        if not off < 1e-3:
            raise ValueError(
                "what was written computes something else than the model: "
                f"a log-probability is {off:.1e} off. {advice}"
            )


def _linear(spec: Any, *parts: nn.Linear) -> None:
    spec.weight = torch.cat([part.weight for part in parts])
    if parts[0].bias is not None:
        spec.bias = torch.cat([part.bias for part in parts])


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight, norm.bias


def _layer(spec: Any, layer: nn.Module) -> None:
    """Fill in one layer of an encoder or a decoder.

    Chapter: export-ctranslate2
    """
    sublayers = [spec.self_attention]
    own = layer.self_attention
    _linear(spec.self_attention.linear[0], own.w_q, own.w_k, own.w_v)
    _linear(spec.self_attention.linear[1], own.w_o)
    if hasattr(layer, "cross_attention"):
        sublayers.append(spec.attention)
        cross = layer.cross_attention
        _linear(spec.attention.linear[0], cross.w_q)
        _linear(spec.attention.linear[1], cross.w_k, cross.w_v)
        _linear(spec.attention.linear[2], cross.w_o)
    sublayers.append(spec.ffn)
    _linear(spec.ffn.linear_0, layer.feed_forward.w_1)
    _linear(spec.ffn.linear_1, layer.feed_forward.w_2)
    for sublayer, residual in zip(sublayers, layer.residuals, strict=True):
        _norm(sublayer.layer_norm, residual.norm)


def _ctranslate2_spec(model: Transformer, tokens: list[str]) -> Any:
    """The model as CTranslate2's `TransformerSpec`.

    `tokens` are in the order of their ids.

    Raises:
        ValueError: if d_k is not d_v.
        AttributeError, TypeError: if the model lacks a part of ours.

    Chapter: export-ctranslate2
    """
    from ctranslate2 import specs

    config = model.config
    d_k = config.d_k or config.d_model // config.h
    if d_k != (config.d_v or config.d_model // config.h):
        raise ValueError("CTranslate2 needs d_k = d_v: train so, or take onnx")
    options = dict(pre_norm=config.norm == "pre", head_dim=d_k)
    encoder = specs.TransformerEncoderSpec(config.N, config.h, **options)
    decoder = specs.TransformerDecoderSpec(config.N, config.h, **options)
    encoder.embeddings[0].weight = model.source_embedding.weight
    decoder.embeddings.weight = model.target_embedding.weight
    decoder.projection.weight = model.output_weight
    bias = torch.zeros(config.vocab_size)
    bias[[PAD, BOS]] = -1e9
    decoder.projection.bias = bias
    table = torch.zeros(1, config.longest, config.d_model)
    if model.positions is not None:
        table = model.positions(table)
    for theirs, ours in (encoder, model.encoder), (decoder, model.decoder):
        theirs.scale_embeddings = config.scale_embeddings
        theirs.position_encodings.encodings = table[0]
        if config.norm == "pre":
            _norm(theirs.layer_norm, ours.norm)
        for their_layer, layer in zip(theirs.layer, ours.layers, strict=True):
            _layer(their_layer, layer)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token = tokens[BOS]
    spec.config.decoder_start_token = tokens[BOS]
    spec.config.eos_token = tokens[EOS]
    spec.validate()  # is anything still empty?
    return spec


_TAKE_ONNX = (
    "CTranslate2 knows the library's own layers alone: take onnx, which "
    "writes down what a model computes"
)


def _save_ctranslate2(
    model: Transformer, tokens: list[str], folder: Path, int8: bool
) -> None:
    """Write the spec, and compare it with the model.

    A class of one's own, an exchanged part or a hook may compute
    something that the spec does not say. int8 rounds, so it is written
    after the whole numbers of the weights are known to be right.

    Raises:
        ValueError: if CTranslate2 would not compute the model.

    Chapter: export-ctranslate2
    """
    import ctranslate2

    try:
        spec = _ctranslate2_spec(model, tokens)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{error}: {_TAKE_ONNX}") from error
    spec.optimize("float32")
    spec.save(str(folder))
    engine = ctranslate2.Translator(str(folder))

    def score(source: list[int], labels: list[int]) -> list[float]:
        names = [[tokens[i] for i in ids] for ids in (source, labels[:-1])]
        [scored] = engine.score_batch(names[:1], names[1:])
        return scored.log_probs

    _check_same(model, score, [PAD, BOS], _TAKE_ONNX)
    if int8:
        spec = _ctranslate2_spec(model, tokens)
        spec.optimize("int8")
        spec.save(str(folder))


def _save_onnx(model: Transformer, folder: Path) -> None:
    """Write model.onnx, and compare it with the model.

    It is for sentences of any length. A part of one's own may have
    been written down as it computes the example, and not as it
    computes every sentence.

    Raises:
        ValueError: if the graph computes something else.

    Chapter: export-onnx
    """
    import onnxscript  # noqa: F401, as torch.onnx needs it
    from onnx.reference import ReferenceEvaluator

    path = folder / "model.onnx"
    any_size = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.onnx.export(
        model,
        kwargs={
            "source_ids": torch.tensor([[4, 5, 6, EOS], [7, EOS, PAD, PAD]]),
            "target_ids": torch.tensor([[BOS, 7, 8], [BOS, 9, 4]]),
        },
        output_names=["logits"],
        dynamic_shapes={"source_ids": any_size, "target_ids": any_size},
        dynamo=True,
        verbose=False,
    )
    program.save(path)
    graph = ReferenceEvaluator(str(path))

    def score(source: list[int], labels: list[int]) -> list[float]:
        ids = {"source_ids": [source], "target_ids": [[BOS, *labels[:-1]]]}
        [logits] = graph.run(None, {x: np.array(ids[x]) for x in ids})
        log_p = torch.tensor(logits[0]).log_softmax(-1)
        return log_p[range(len(labels)), labels].tolist()

    _check_same(model, score, [], "A part depends on its example's sizes")


def export_model(
    translator: Translator,
    folder: str | Path,
    to: str = "ctranslate2",
    int8: bool = False,
) -> None:
    """Write a translator's model and tokenizer for another engine.

    It takes sentences of up to `max_length` tokens. onnx is one graph,
    model.onnx: `source_ids` (batch, source_len) and `target_ids`
    (batch, target_len) to `logits` (batch, target_len, vocab_size).

    Args:
        folder: a new one
        to: ctranslate2 or onnx
        int8: weights as whole numbers, for ctranslate2

    Raises:
        ValueError: for another `to`, or int8 with onnx; or if what was
            written gives other scores than the model.
        ImportError: naming the extra that is missing.
        FileExistsError: if the folder, or a file of its name, is there.
        NotADirectoryError: if it is in a file.
        TypeError: for another kind of tokenizer.

    Chapter: export-function
    """
    if to not in ("ctranslate2", "onnx") or (int8 and to == "onnx"):
        raise ValueError(f"{to=}, {int8=}: ctranslate2, or onnx without int8")
    model, tokenizer = _frozen(translator.model), translator.tokenizer
    if type(tokenizer) is not BPETokenizer:
        raise TypeError(f"a {type(tokenizer).__name__} is no BPETokenizer")
    folder = as_path(folder)
    folder.mkdir(parents=True)
    try:
        if to == "ctranslate2":
            ids = range(len(tokenizer))
            tokens = [tokenizer.tokenizer.id_to_token(i) for i in ids]
            _save_ctranslate2(model, tokens, folder, int8)
        else:
            _save_onnx(model, folder)
        tokenizer.save(folder / "tokenizer.json")
    except BaseException as error:
        shutil.rmtree(folder)  # half an export is none
        if isinstance(error, ModuleNotFoundError):
            raise ImportError(
                f"{error.name} is missing: "
                'pip install "executable-transformer[export]"'
            ) from error
        raise
