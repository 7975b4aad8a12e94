"""The whole model against PyTorch's, and what must never leak."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import nn
from translators import (
    hides_what_comes_later,
    ignores_padding,
    silence_attention,
)

from transformer_lib.decoding import DecoderCache
from transformer_lib.embeddings import Embeddings
from transformer_lib.masks import decoder_mask, padding_mask
from transformer_lib.model import (
    STARTS,
    Transformer,
    TransformerConfig,
    draw_weights,
    model_class,
)

SMALL = dict(N=2, d_model=16, d_ff=32, h=4, dropout=0.0)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12], [2, 9, 0, 0]])
THEIR_NAMES = {
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "w_q.": "in_proj_",
    "w_o": "out_proj",
    "feed_forward.w_": "linear",
    "residuals.0.norm": "norm1",
    "residuals.1.norm": "norm2",
    "residuals.2.norm": "norm3",
}


def small(seed: int = 0, **changes) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(TransformerConfig(13, **(SMALL | changes)))


def under_their_names(ours: dict) -> dict:
    """What torch.nn.Transformer calls the parts of our two stacks."""
    theirs = {}
    for name, value in ours.items():
        if "coder." not in name or "w_k" in name or "w_v" in name:
            continue
        if "w_q" in name:
            value = torch.cat(
                [ours[name.replace("w_q", f"w_{x}")] for x in "qkv"]
            )
        for old, new in THEIR_NAMES.items():
            name = name.replace(old, new)
        theirs[name] = value
    return theirs


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_torch_transformer(norm):
    """Outputs, and the gradient of every weight of both stacks."""
    ours = small(norm=norm, bias=True)
    with torch.no_grad():  # no norm at one, no bias at zero
        for p in ours.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn(p.shape)
    sizes = dict(d_model=16, nhead=4, dim_feedforward=32, dropout=0.0)
    theirs = nn.Transformer(
        num_encoder_layers=2,
        num_decoder_layers=2,
        batch_first=True,
        norm_first=norm == "pre",
        **sizes,
    )
    if norm == "post":  # theirs always has the last norms
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.load_state_dict(under_their_names(ours.state_dict()))
    hidden = theirs(
        ours.embed(SOURCE, ours.source_embedding).detach(),
        ours.embed(TARGET, ours.target_embedding).detach(),
        tgt_mask=~torch.ones(4, 4).bool().tril(),
        src_key_padding_mask=SOURCE == 0,
        tgt_key_padding_mask=TARGET == 0,
        memory_key_padding_mask=SOURCE == 0,
    )
    b = hidden[TARGET != 0] @ ours.output_weight.detach().T
    a = ours(SOURCE, TARGET)[TARGET != 0]
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    pull = torch.randn(a.shape)
    (a * pull).sum().backward()
    (b * pull).sum().backward()
    grads = under_their_names(
        {name: p.grad for name, p in ours.named_parameters()}
    )
    wanted = {name: p.grad for name, p in theirs.named_parameters()}
    torch.testing.assert_close(grads, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_later_target_never_changes_earlier_logits(norm):
    hides_what_comes_later(small(norm=norm).double().eval())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_never_changes_result_nor_gradient(norm):
    ignores_padding(small(norm=norm).double(), SOURCE, TARGET)


def test_two_stacks_meet_in_cross_attention_alone():
    """Section 3: the decoder sees the source through the memory."""
    model = small().eval()
    memory = model.encode(SOURCE)
    assert memory.shape == (2, 5, 16)  # a vector for each symbol
    hidden = model.decode(TARGET, memory, SOURCE)
    assert torch.equal(model.project(hidden), model(SOURCE, TARGET))
    nothing = torch.zeros_like(memory)
    a = model.decode(TARGET, nothing, SOURCE)
    other = torch.where(SOURCE != 0, 12, 0)
    assert torch.equal(a, model.decode(TARGET, nothing, other))
    assert not torch.equal(a, hidden)


@pytest.mark.parametrize("positions", ["sinusoid", "learned", "none"])
def test_decode_with_cache_equals_without(positions):
    model = small(positions=positions).double().eval()
    kinds = {"SinusoidalPositions": "sinusoid", "LearnedPositions": "learned"}
    assert kinds.get(type(model.positions).__name__, "none") == positions
    memory = model.encode(SOURCE)
    ids = torch.randint(4, 13, (2, 6))
    whole = model.decode(ids, memory, SOURCE)
    for sizes in ([1] * 6, [1, 3, 2]):  # one by one, or several at once
        cache = DecoderCache(model, memory, longest=6)
        parts = [
            model.decode(new, memory, SOURCE, cache)
            for new in ids.split(sizes, 1)
        ]
        torch.testing.assert_close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize(
    ("tie", "tables"), [("three-way", 1), ("decoder", 2), ("none", 3)]
)
def test_tied_gradients_come_from_every_place(tie, tables):
    """A tied matrix has the sum of the separate ones' gradients."""
    tied = small(tie=tie).double()
    free = small(tie="none").double()
    free.load_state_dict(tied.state_dict())
    for model in (tied, free):
        real = model(SOURCE, TARGET)[TARGET != 0]
        real.logsumexp(-1).sum().backward()
    grads, homes = {}, set()
    for name in (
        "source_embedding",
        "target_embedding",
        "pre_softmax",
    ):
        home = getattr(tied, name).weight
        homes.add(home.data_ptr())
        share = getattr(free, name).weight.grad
        assert share.abs().sum() > 0
        grads[home] = grads.get(home, 0) + share
    assert len(homes) == tables
    for home, total in grads.items():
        torch.testing.assert_close(home.grad, total)


def matrices(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every matrix of a Linear, by the name of its module."""
    return {
        path: module.weight
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }


def test_embeddings_begin_with_their_own_deviation():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(4000, N=1, d_model=256, h=4))
    table = model.output_weight
    assert abs(table.std().item() * 256**0.5 - 1) < 0.01
    assert isinstance(model.source_embedding, Embeddings)


def drawn_at_first(config: TransformerConfig) -> dict[str, torch.Tensor]:
    """What Xavier's range gives, matrix by matrix, seed 0."""
    torch.manual_seed(0)
    model = Transformer(config)
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return {path: w.clone() for path, w in matrices(model).items()}


def wanted_factor(path: str, start: str) -> float:
    """What a start multiplies a matrix by, written down again."""
    last = path.split(".")[-1]
    if start == "xavier" or path == "pre_softmax":
        return 1
    if "self_attention" in path and last in ("w_q", "w_k", "w_v"):
        return (2 / 4) ** 0.5  # sqrt(6 / 4d) over sqrt(6 / 2d)
    if "cross_attention" in path and last in ("w_k", "w_v"):
        return (2 / 3) ** 0.5  # sqrt(6 / 3d) over sqrt(6 / 2d)
    if start == "small" and last in ("w_o", "w_2"):
        return STARTS["small"]["w_o"]
    return 1


@pytest.mark.parametrize("start", STARTS)
def test_starts_differ_by_their_factors_alone(start):
    """The same draws, each matrix alone, times what the start says."""
    config = TransformerConfig(13, **SMALL, bias=True, tie="none")
    first = drawn_at_first(config)
    model = Transformer(config)
    torch.manual_seed(1)
    draw_weights(model, start)
    for path, matrix in matrices(model).items():
        wanted = first[path] * wanted_factor(path, start)
        torch.testing.assert_close(matrix.detach(), wanted)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert not weight.any(), name


def test_start_xavier_multiplies_by_nothing():
    """Bit for bit each matrix alone: older records were drawn so."""
    config = TransformerConfig(13, **SMALL, start="xavier")
    first = drawn_at_first(config)
    model = Transformer(config)
    torch.manual_seed(1)
    draw_weights(model, "xavier")
    found = matrices(model)
    del first["pre_softmax"], found["pre_softmax"]  # tied after drawing
    for path, matrix in found.items():
        assert torch.equal(matrix, first[path]), path


@pytest.mark.parametrize("start", STARTS)
def test_a_model_is_drawn_by_its_configs_start(start):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(13, **SMALL, start=start))
    ours = model.encoder.layers[0].self_attention.w_q.weight
    bound = (6 / 32) ** 0.5 * wanted_factor("self_attention.w_q", start)
    assert 0.95 * bound < ours.abs().max() <= bound


def test_a_packed_start_has_the_range_of_the_packed_matrix():
    """As PyTorch draws its in_proj_weight: (3 d_model, d_model)."""
    torch.manual_seed(0)
    config = TransformerConfig(13, d_model=128, d_ff=256, h=4, N=2)
    model = Transformer(replace(config, start="packed"))
    theirs = nn.MultiheadAttention(128, 4, bias=False).in_proj_weight
    for layer in model.decoder.layers:
        a = layer.self_attention
        ours = torch.cat([a.w_q.weight, a.w_k.weight, a.w_v.weight])
        assert abs(ours.std() / theirs.std() - 1) < 0.02
        assert abs(ours.abs().max() / theirs.abs().max() - 1) < 0.001


def test_every_start_has_a_name_and_others_are_refused():
    with pytest.raises(ValueError, match="start='kaiming'.*packed"):
        TransformerConfig(13, start="kaiming")
    with pytest.raises(ValueError, match="start='kaiming'.*packed"):
        draw_weights(small(), "kaiming")
    for start in STARTS:
        assert TransformerConfig(13, start=start).start == start


def test_dropout_falls_on_the_sums_in_both_stacks():
    """Section 5.4; whole components go, positions included."""
    model = small(dropout=0.5).train()
    inputs = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(SOURCE.repeat(20, 1), TARGET.repeat(20, 1))
    for x in inputs:
        assert 0.4 < (x == 0).float().mean() < 0.6
    model.eval()(SOURCE, TARGET)
    assert not (inputs[2] == 0).any() and not (inputs[3] == 0).any()


def test_stacks_have_N_layers_of_one_build_with_weights_of_their_own():
    """Section 3.1: N layers, and not one layer N times."""
    for N in (1, 3):
        model = small(N=N).eval()
        for stack in (model.encoder, model.decoder):
            assert len(stack.layers) == N
            assert len({type(layer) for layer in stack.layers}) == 1
            places = [
                weight.data_ptr()
                for layer in stack.layers
                for weight in layer.parameters()
            ]
            assert len(set(places)) == len(places)
        mask = padding_mask(SOURCE)
        x = model.embed(SOURCE, model.source_embedding)
        for layer in model.encoder.layers:
            x = layer(x, mask)
        assert torch.equal(model.encode(SOURCE), x)

        memory, x = x, model.embed(TARGET, model.target_embedding)
        for layer in model.decoder.layers:
            x = layer(x, memory, decoder_mask(TARGET), mask)
        assert torch.equal(model.decode(TARGET, memory, SOURCE), x)


def test_feed_forward_parameters_differ_from_layer_to_layer():
    """Section 3.3, in the models that are trained."""
    model = small(N=3)
    layers = [*model.encoder.layers, *model.decoder.layers]
    networks = [layer.feed_forward for layer in layers]
    for name, _ in networks[0].named_parameters():
        weights = [network.get_parameter(name) for network in networks]
        assert len({weight.data_ptr() for weight in weights}) == 6
        if name.endswith("weight"):
            for one, other in combinations(weights, 2):
                assert not torch.equal(one, other)


def test_no_recurrence_no_convolution():
    model = Transformer(TransformerConfig.tiny(13))
    kinds = {type(m).__name__ for m in model.modules()}
    assert kinds == {
        "Transformer",
        "Embeddings",
        "SinusoidalPositions",
        "Encoder",
        "EncoderLayer",
        "Decoder",
        "DecoderLayer",
        "MultiHeadAttention",
        "FeedForward",
        "Residual",
        "LayerNorm",
        "Linear",
        "Dropout",
        "ModuleList",
    }
    ids = torch.arange(4, 10)[None]
    other = ids.clone()
    other[0, 2] = 11
    model.eval()
    memory = model.encode(ids)
    assert torch.equal(
        model.hidden(ids, other), model.decode(other, memory, ids)
    ), "nothing between the stacks"
    # With attention silenced no position hears of another.
    silence_attention(model)
    for run in model.encode, lambda target: model.hidden(ids, target):
        moved = (run(other) - run(ids)).abs().amax(-1)[0] > 1e-4
        assert moved.tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(norm="rms"), ["norm='rms'", "post"]),
        (dict(positions="rotary"), ["rotary", "sinusoid"]),
        (dict(tie="all"), ["tie='all'", "three-way"]),
        (dict(h=3), ["h=3", "d_model=16", "d_k"]),
        (dict(d_model=15, h=5), ["d_model=15", "even"]),
        (dict(N=0), ["N=0"]),
        (dict(N=None), ["N=None"]),
        (dict(dropout=1.0), ["dropout=1.0", "give 0 <= p < 1"]),
        (dict(dropout="0.1"), ["dropout='0.1'", "give 0 <= p < 1"]),
        (dict(relu_dropout=float("nan")), ["relu_dropout=nan"]),
        (dict(vocab_size=1.5), ["vocab_size=1.5"]),
        (dict(bias=3), ["bias=3", "True"]),
    ],
)
def test_impossible_sizes_are_refused(changes, words):
    sizes = {"vocab_size": 13} | SMALL | changes
    with pytest.raises(ValueError) as error:
        Transformer(TransformerConfig(**sizes))
    for word in words:
        assert word in str(error.value)


def test_h_need_not_divide_when_both_sizes_are_given():
    model = small(h=3, d_k=4, d_v=6)
    assert model(SOURCE, TARGET).shape == (2, 4, 13)


def test_a_single_sentence_must_be_a_batch_of_one():
    with pytest.raises(ValueError, match="ids\\[None\\]"):
        small()(SOURCE[0], TARGET[0])


def test_named_sizes():
    """Table 3's base and big, section 3.1's N, h, d_k and widths."""
    base = Transformer(TransformerConfig.base(50))
    layers = [*base.encoder.layers, *base.decoder.layers]
    assert len(base.encoder.layers) == len(base.decoder.layers) == 6
    for layer in layers:
        attention = layer.self_attention
        assert attention.h == 8
        assert attention.w_k.weight.shape == (8 * 64, 512)
        assert attention.w_v.weight.shape == (8 * 64, 512)
        assert layer.feed_forward.w_1.weight.shape == (2048, 512)
        assert [r.dropout.p for r in layer.residuals[:2]] == [0.1] * 2
    assert base.dropout.p == 0.1
    assert TransformerConfig.base(50) == TransformerConfig(50)
    big = TransformerConfig.big(50)
    sizes = big.N, big.d_model, big.d_ff, big.h, big.dropout
    assert sizes == (6, 1024, 4096, 16, 0.3)
    tiny = TransformerConfig.tiny(50, norm="pre")
    sizes = tiny.N, tiny.d_model, tiny.d_ff, tiny.h, tiny.norm
    assert sizes == (4, 128, 256, 4, "pre")


def test_parameters_of_base_and_big():
    """What the sizes of section 3 add up to with V = 37,000."""
    for config, wanted in (
        (TransformerConfig.base(37_000), 63_045_632),
        (TransformerConfig.base(37_000, tie="none"), 100_933_632),
        (TransformerConfig.big(37_000), 214_171_648),
    ):
        with torch.device("meta"):  # shapes without memory
            model = Transformer(config)
        assert sum(p.numel() for p in model.parameters()) == wanted


def test_a_class_of_model_is_found_by_its_name():
    class Relative(Transformer):
        pass

    assert model_class("Transformer") is Transformer
    assert model_class("Relative") is Relative
    with pytest.raises(ValueError, match="'Unheard'.*import"):
        model_class("Unheard")


def test_what_torch_derives_to_trace_a_model_is_not_its_class():
    """An export leaves such classes, of the same name and module."""
    proxy = type("AttrProxy", (), {"__module__": "torch.fx.experimental"})
    module = {"__module__": Transformer.__module__}
    traced = type("Transformer", (proxy, Transformer), module)
    assert model_class("Transformer") is Transformer
    assert traced in Transformer.__subclasses__()


def test_a_stack_has_at_most_a_thousand_layers():
    assert TransformerConfig(13, N=1000).N == 1000
    with pytest.raises(ValueError, match="N=1001: .* from 1 to 1000"):
        TransformerConfig(13, N=1001)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_goes_in_and_nothing_comes_out(shape):
    """No sentence, or sentences of no piece: shapes, no error."""
    model = small().eval()
    nothing = torch.zeros(shape, dtype=torch.long)
    assert model(nothing, nothing).shape == (*shape, 13)
