"""Other engines say what the library says."""

import sys

import numpy as np
import pytest
import torch
from since import GatedFeedForward

from transformer_lib.beams import decode_all, longest_source
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.export import export_model
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import Translator

# The extra `export` needs a newer PyTorch than the library does.
ctranslate2 = pytest.importorskip("ctranslate2")
onnxruntime = pytest.importorskip("onnxruntime")

SMALL = dict(N=2, d_model=16, d_ff=32, h=2, max_length=100)


def greedy(model, sources):
    """Ids of our outputs, eos included."""
    found = decode_all(model, sources, beam_size=1)
    return [best.ids for [best] in found]


class Graph:
    """The graph of a folder, and the plain loop over it."""

    def __init__(self, folder):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = folder / "model.onnx"
        self.session = onnxruntime.InferenceSession(path, options)

    def logits(self, sources, targets):
        ids = {"source_ids": sources, "target_ids": targets}
        return self.session.run(
            ["logits"], {x: np.array(ids[x]) for x in ids}
        )[0]

    def greedy(self, source):
        ids = [BOS]
        while ids[-1] != EOS and len(ids) < len(source) + 50:
            last = self.logits([source], [ids])[0, -1]
            last[[PAD, BOS]] = -np.inf  # as in our own searches
            ids.append(int(last.argmax()))
        return ids[1:]


@pytest.fixture(scope="module")
def tokenizer():
    return BPETokenizer.train(["I like trees.", "Me gustan."], 270)


def drawn(tokenizer, **options):
    """A model with nothing at its initial 0 or 1, and sources."""
    torch.manual_seed(1)
    config = TransformerConfig(len(tokenizer), **(SMALL | options))
    model = Transformer(config).eval()
    for weight in model.parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight)
    texts = ["I like trees.", "gustan", "Me, me, me.", "I"]
    translator = Translator(model, tokenizer)
    return translator, translator.encode(texts)


def test_a_graph_is_for_any_length_and_for_a_beam(tokenizer, tmp_path):
    translator, sources = drawn(tokenizer)
    export_model(translator, tmp_path / "x", to="onnx")
    graph = Graph(tmp_path / "x")
    long, row = [5] * 99 + [EOS], [BOS, *range(4, 60)]
    with torch.inference_mode():
        ids = torch.tensor([long]), torch.tensor([row])
        wanted = translator.model(*ids).numpy()
    assert np.allclose(graph.logits([long], [row]), wanted, atol=1e-4)
    together = graph.logits([sources[0] + [PAD]] * 3, [row] * 3)
    alone = graph.logits(sources[:1], [row])
    assert np.allclose(together, alone, atol=1e-4)


def test_int8_takes_less_room(tmp_path):
    translator = Translator.from_pretrained("little-spanish")
    sizes = []
    for int8 in False, True:
        export_model(translator, tmp_path / str(int8), int8=int8)
        model = tmp_path / str(int8) / "model.bin"
        sizes.append(model.stat().st_size)
    assert sizes[1] < 0.4 * sizes[0]


OPTIONS = [
    {"norm": "pre"},
    {"norm": "pre", "bias": True},
    {"bias": True},
    {"positions": "learned"},
    {"positions": "none"},
    {"tie": "decoder"},
    {"tie": "none"},
    {"scale_embeddings": False},
    {"d_k": 12, "d_v": 12, "bias": True},
    {"d_k": 4, "d_v": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_ctranslate2_holds_the_option(options, tokenizer, tmp_path):
    translator, sources = drawn(tokenizer, **options)
    sources.append([5] * longest_source(translator.model) + [EOS])
    translator.model.train().double()  # as it may be found
    export_model(translator, tmp_path / "x")
    assert translator.model.training
    model = translator.model.float().eval()
    engine = ctranslate2.Translator(str(tmp_path / "x"))
    names = [
        [tokenizer.tokenizer.id_to_token(i) for i in ids] for ids in sources
    ]
    # Each sentence's log-probability, piece by piece, given the last.
    found = engine.score_batch(names, [row[:-1] for row in names[::-1]])
    for source, target, said in zip(
        sources, sources[::-1], found, strict=True
    ):
        ids = torch.tensor([[BOS, *target[:-1]]])
        with torch.inference_mode():
            logits = model(torch.tensor([source]), ids)[0]
            logits[:, [PAD, BOS]] = -torch.inf
        logs = logits.log_softmax(-1)[range(len(target)), target]
        theirs = torch.tensor(said.log_probs)
        torch.testing.assert_close(theirs, logs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("options", [{"d_k": 4}, {"d_v": 4}], ids=str)
def test_what_ctranslate2_does_not_hold(options, tokenizer, tmp_path):
    translator, _ = drawn(tokenizer, **options)
    with pytest.raises(ValueError, match="needs d_k = d_v"):
        export_model(translator, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def with_layers(tokenizer, kind):
    translator, sources = drawn(tokenizer, N=1)
    for layer in translator.model.encoder.layers:
        layer.feed_forward = kind(16, 32)
    return translator, sources


def test_a_model_of_ones_own_is_written_as_a_graph(tokenizer, tmp_path):
    translator, sources = with_layers(tokenizer, GatedFeedForward)
    with pytest.raises(ValueError, match="take onnx"):
        export_model(translator, tmp_path / "x")
    export_model(translator, tmp_path / "x", to="onnx")
    assert (tmp_path / "x" / "tokenizer.json").is_file()
    graph = Graph(tmp_path / "x")
    found = [graph.greedy(source) for source in sources]
    assert found == greedy(translator.model, sources)


class Drifting(torch.nn.Module):
    """Another function at each call; a graph keeps only one of them."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return (self.calls * x).sin()


def test_a_graph_that_is_not_the_model_is_refused(tokenizer, tmp_path):
    translator, _ = with_layers(tokenizer, Drifting)
    with pytest.raises(ValueError, match="computes something else"):
        export_model(translator, tmp_path / "x", to="onnx")
    assert not (tmp_path / "x").exists()


def with_part(name, function):
    """A change of one module's outputs that a spec cannot say."""

    def changed(model):
        part = model.get_submodule(name)
        part.register_forward_hook(lambda _, x, out: function(out))

    return changed


class Warm(Transformer):
    def project(self, hidden):
        return super().project(hidden) / 2


def of_another_class(model):
    model.__class__ = Warm


CHANGES = {
    "a hook": with_part("encoder.layers.0.feed_forward", lambda out: 0 * out),
    "a class of its own": of_another_class,
    "another size": lambda model: setattr(
        model.decoder.layers[0].self_attention, "h", 4
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_differs_from_the_model_is_refused(change, tokenizer, tmp_path):
    """By its numbers: nobody need have thought of the difference."""
    translator, sources = drawn(tokenizer)
    change(translator.model)
    for int8 in False, True:
        with pytest.raises(ValueError, match="take onnx"):
            export_model(translator, tmp_path / "x", int8=int8)
        assert not (tmp_path / "x").exists()
    export_model(translator, tmp_path / "x", to="onnx")
    ours = greedy(translator.model, sources[:1])
    assert [Graph(tmp_path / "x").greedy(sources[0])] == ours


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_a_missing_extra_is_named_with_its_command(
    to, tokenizer, tmp_path, monkeypatch
):
    for name in "ctranslate2", "onnxscript":
        monkeypatch.setitem(sys.modules, name, None)
    translator, _ = drawn(tokenizer)
    with pytest.raises(ImportError, match='is missing: pip install ".*ort]"'):
        export_model(translator, tmp_path / "x", to)
    assert not (tmp_path / "x").exists()


def test_bad_requests_are_named(tokenizer, tmp_path):
    translator, _ = drawn(tokenizer)
    for wrong in ({"to": "tflite"}, {"to": "onnx", "int8": True}):
        with pytest.raises(ValueError, match="ctranslate2, or"):
            export_model(translator, tmp_path / "x", **wrong)
    with pytest.raises(FileExistsError, match=tmp_path.name):
        export_model(translator, tmp_path)
    own = Translator(translator.model, tokenizer)
    own.tokenizer = range(270)
    with pytest.raises(TypeError, match="a range is no BPETokenizer"):
        export_model(own, tmp_path / "x", to="onnx")
