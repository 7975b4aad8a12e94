"""A search of each contestant, for exactly NEW_PIECES a sentence."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from models import as_marian, as_torch, convert, random_model
from torch import Tensor, nn
from transformers import MarianMTModel

from transformer_lib import beams, decoding
from transformer_lib.beams import beam_search
from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, PAD
from transformer_lib.masks import causal_mask
from transformer_lib.model import Transformer, TransformerConfig

NEW_PIECES = 20
Search = Callable[[], list[list[int]]]


def our_search(
    model: Transformer, source_ids: Tensor, beam_size: int
) -> Search:
    """Ours, each sentence's limit set to NEW_PIECES."""

    def limits(*_) -> list[int]:
        return [NEW_PIECES] * len(source_ids)

    def search() -> list[list[int]]:
        if beam_size == 1:
            with patch.object(decoding, "length_limits", limits):
                found = greedy_decode(model, source_ids)
        else:
            with patch.object(beams, "length_limits", limits):
                found = beam_search(model, source_ids, beam_size)
        return [hypotheses[0].ids for hypotheses in found]

    return search


def torch_search(
    ours: Transformer, theirs: nn.Transformer, source_ids: Tensor
) -> Search:
    """Greedy without a cache: `torch.nn.Transformer` has none."""
    pad = source_ids == PAD

    @torch.inference_mode()
    def search() -> list[list[int]]:
        x = ours.embed(source_ids, ours.source_embedding)
        memory = theirs.encoder(x, src_key_padding_mask=pad)
        ids = torch.full((len(source_ids), 1), BOS)
        for _ in range(NEW_PIECES):
            hidden = theirs.decoder(
                ours.embed(ids, ours.target_embedding),
                memory,
                tgt_mask=~causal_mask(ids.size(1), ids.device)[0, 0],
                tgt_is_causal=True,
                memory_key_padding_mask=pad,
            )
            best = ours.project(hidden[:, -1]).argmax(-1)
            ids = torch.cat([ids, best[:, None]], 1)
        return ids[:, 1:].tolist()

    return search


def marian_search(
    theirs: MarianMTModel, source_ids: Tensor, beam_size: int
) -> Search:
    """Hugging Face's `generate`."""
    mask = (source_ids != PAD).long()

    @torch.inference_mode()
    def search() -> list[list[int]]:
        ids = theirs.generate(
            source_ids,
            attention_mask=mask,
            num_beams=beam_size,
            do_sample=False,
            max_new_tokens=NEW_PIECES,
            length_penalty=0.6,
        )
        return ids[:, 1:].tolist()

    return search


class CTranslate2Search:
    """CTranslate2 in a process of its own, which times itself."""

    def __init__(
        self,
        ours: Transformer,
        source_ids: Tensor,
        beam_size: int,
        folder: Path,
        threads: int,
    ):
        convert(ours, folder)
        job = {
            "folder": str(folder),
            "threads": threads,
            "beam_size": beam_size,
            "pieces": NEW_PIECES,
            "sources": [
                [str(i) for i in row if i != PAD]
                for row in source_ids.tolist()
            ],
        }
        script = Path(__file__).with_name("ctranslate2_server.py")
        self.process = subprocess.Popen(
            [sys.executable, script, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: str) -> list:
        """ "wall" and "cpu" give seconds, "ids" what was decoded."""
        print(request, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def __call__(self) -> list[list[int]]:
        return [[int(i) for i in row] for row in self.ask("ids")]

    def seconds(self, clock: Callable[[], float], times: int) -> float:
        kind = "cpu" if clock is time.process_time else "wall"
        return self.ask(f"{kind} {times}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def searches(
    config: TransformerConfig,
    source_ids: Tensor,
    beam_size: int,
    folder: Path,
    threads: int,
) -> dict[str, Search]:
    """A search of each; nn.Transformer has none with beams."""
    ours = random_model(config).eval()
    found: dict[str, Search] = {
        "ours": our_search(ours, source_ids, beam_size)
    }
    if beam_size == 1:
        theirs = as_torch(ours).eval()
        found["nn.Transformer"] = torch_search(ours, theirs, source_ids)
    for kind in ("eager", "sdpa"):
        theirs = as_marian(ours, kind).eval()
        found[f"HF {kind}"] = marian_search(theirs, source_ids, beam_size)
    found["CTranslate2"] = CTranslate2Search(
        ours, source_ids, beam_size, folder, threads
    )
    expected = found["ours"]()
    assert {len(row) for row in expected} == {NEW_PIECES}
    for name, search in found.items():
        same = [a == b for a, b in zip(expected, search(), strict=True)]
        share = sum(same) / len(same)
        assert share > 0.9, f"{name} agrees with ours on {share:.0%}"
    return found
