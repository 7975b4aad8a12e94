"""The whole model against PyTorch's, and what must never leak."""

from functools import partial
from itertools import combinations, product

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from translators import (
    decode_in_parts,
    hides_what_comes_later,
    ignores_padding,
    silence_attention,
)

from transformer_lib.attention import MultiHeadAttention, record_attention
from transformer_lib.embeddings import Embeddings
from transformer_lib.layers import FeedForward
from transformer_lib.masks import decoder_mask, padding_mask
from transformer_lib.model import (
    INIT_FACTORS,
    Transformer,
    TransformerConfig,
    evaluating,
    initialize_weights,
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


def sentences(*lengths: int) -> torch.Tensor:
    """Random pieces, eos at the end, padding behind."""
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, n in zip(ids, lengths, strict=True):
        row[:n] = torch.randint(4, 13, (n,))
        row[n - 1] = 3
    return ids


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
    """Outputs, and the gradient of every weight of both stacks.

    In training and after it, at once and piece by piece.
    """
    ours = small(N=6, norm=norm, bias=True).double()
    source, target = sentences(14, 4, 9), sentences(6, 11, 3)
    real = target != 0
    with torch.no_grad():  # no norm at one, no bias at zero
        for p in ours.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn(p.shape)
    sizes = dict(d_model=16, nhead=4, dim_feedforward=32, dropout=0.0)
    theirs = nn.Transformer(
        num_encoder_layers=6,
        num_decoder_layers=6,
        batch_first=True,
        norm_first=norm == "pre",
        **sizes,
    ).double()
    if norm == "post":  # theirs always has the last norms
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.load_state_dict(under_their_names(ours.state_dict()))
    hidden = theirs(
        ours.embed(source, ours.source_embedding).detach(),
        ours.embed(target, ours.target_embedding).detach(),
        tgt_mask=~torch.ones(11, 11).bool().tril(),
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    b = hidden[real] @ ours.output_weight.detach().T
    pull = torch.randn(b.shape, dtype=b.dtype)
    (b * pull).sum().backward()
    wanted = {name: p.grad for name, p in theirs.named_parameters()}
    for training in (True, False):
        ours.train(training).zero_grad()
        a = ours(source, target)[real]
        assert_close(a, b)
        (a * pull).sum().backward()
        grads = under_their_names(
            {name: p.grad for name, p in ours.named_parameters()}
        )
        assert_close(grads, wanted)
        with torch.no_grad():
            memory = ours.encode(source)
            hidden = decode_in_parts(ours, target, memory, source)
            assert_close(ours.project(hidden)[real], b)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_later_target_never_changes_earlier_logits(norm):
    hides_what_comes_later(small(norm=norm).double().eval())
    # Each prediction depends on every piece up to its own place.
    model = small(N=3, norm=norm).double()
    source, target = sentences(9, 4, 7), sentences(20, 24, 7)
    places = [0, 1, 2, 4, 8, 12, 18, 23]  # of a piece that is changed
    many = target.repeat(9, 1, 1)  # (place, batch, len); the last as it was
    for copy, at in zip(many[:8], places, strict=True):
        piece = target[:, at]
        copy[:, at] = torch.where(piece != 0, 4 + (piece - 3) % 9, 0)
    wanted = (many != target).cumsum(-1) > 0
    ids, sources = many.flatten(0, 1), source.repeat(9, 1)
    for training in (True, False):
        memory = model.train(training).encode(sources)
        for hidden in (
            model.decode(ids, memory, sources),
            model.decode(ids, memory, None),
            decode_in_parts(model, ids, memory, sources),
            decode_in_parts(model, ids, memory, sources, sizes=7),
        ):
            hidden = hidden.unflatten(0, (9, 3))
            moved = (hidden - hidden[-1]).abs().amax(-1) > 1e-9
            real = (target != 0).expand_as(moved)
            assert torch.equal(moved[real], wanted[real])
        alone = model.decode(target[:1], memory[:1], source[:1])
        assert_close(alone[:, :20], hidden[-1][:1, :20])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_never_changes_result_nor_gradient(norm):
    ignores_padding(small(norm=norm).double(), SOURCE, TARGET)


def test_two_stacks_meet_in_cross_attention_alone():
    """Section 3: the decoder sees the source through the memory."""
    model = small(N=3).double()
    source, target = sentences(12, 4, 30), sentences(9, 15, 4)
    real = target != 0
    for training in (True, False):
        memory = model.train(training).encode(source)
        memory.retain_grad()
        assert memory.shape == (3, 30, 16)  # a vector for each symbol
        assert memory.any(-1).all()
        apart = torch.cdist(memory, memory) + torch.eye(30)
        assert apart.min() > 1e-3, "each another"
        hidden = model.decode(target, memory, source)
        assert torch.equal(model.project(hidden), model(source, target))
        nothing = torch.zeros_like(memory)
        a = model.decode(target, nothing, source)
        other = torch.where(source != 0, 12, 0)
        assert torch.equal(a, model.decode(target, nothing, other))
        assert not torch.equal(a, hidden)
        # A sentence has its own memory, all of it, in every layer.
        parts = decode_in_parts(model, target, memory, source)
        assert_close(parts[real], hidden[real])
        rows = [
            model.hidden(s[s != 0][None], t[t != 0][None])[0]
            for s, t in zip(source, target, strict=True)
        ]
        assert_close(torch.cat(rows), hidden[real])
        hidden[real].tanh().sum().backward()
        moves = memory.grad.abs().amax(-1) > 1e-9
        assert torch.equal(moves, source != 0)
        model.zero_grad()
        model(source, target)[real].logsumexp(-1).sum().backward()
        assert all(p.grad.any() for p in model.parameters())


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


def xavier_numbers(config: TransformerConfig) -> dict[str, torch.Tensor]:
    """What Xavier's range gives, matrix by matrix, seed 0."""
    torch.manual_seed(0)
    model = Transformer(config)
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return {path: w.clone() for path, w in matrices(model).items()}


def wanted_factor(path: str, init: str) -> float:
    """What an initialization multiplies a matrix by, written down again."""
    last = path.split(".")[-1]
    if init == "xavier" or path == "pre_softmax":
        return 1
    if "self_attention" in path and last in ("w_q", "w_k", "w_v"):
        return (2 / 4) ** 0.5  # sqrt(6 / 4d) over sqrt(6 / 2d)
    if "cross_attention" in path and last in ("w_k", "w_v"):
        return (2 / 3) ** 0.5  # sqrt(6 / 3d) over sqrt(6 / 2d)
    if init == "small" and last in ("w_o", "w_2"):
        return INIT_FACTORS["small"]["w_o"]
    return 1


@pytest.mark.parametrize("init", INIT_FACTORS)
def test_initializations_differ_only_by_their_factors(init):
    """Bit for bit the same numbers as in the records."""
    config = TransformerConfig(13, **SMALL, bias=True, tie="none")
    first = xavier_numbers(config)
    model = Transformer(config)
    torch.manual_seed(1)
    initialize_weights(model, init)
    for path, matrix in matrices(model).items():
        wanted = first[path] * wanted_factor(path, init)
        assert torch.equal(matrix, wanted), path
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert not weight.any(), name


@pytest.mark.parametrize("init", INIT_FACTORS)
def test_a_model_is_initialized_as_its_config_says(init):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(13, **SMALL, init=init))
    ours = model.encoder.layers[0].self_attention.w_q.weight
    bound = (6 / 32) ** 0.5 * wanted_factor("self_attention.w_q", init)
    assert 0.95 * bound < ours.abs().max() <= bound


@pytest.mark.parametrize("positions", ["sinusoid", "learned", "none"])
def test_dropout_falls_on_the_sums_in_both_stacks(positions):
    """Section 5.4; single components go, positions included."""
    p = 0.3
    model = small(dropout=p, positions=positions, tie="none").eval()
    kinds = {"SinusoidalPositions": "sinusoid", "LearnedPositions": "learned"}
    assert kinds.get(type(model.positions).__name__, "none") == positions
    inputs = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    ids = SOURCE.repeat(100, 1), TARGET.repeat(100, 1)
    model(*ids)
    for _ in range(2):  # more than once
        model.train()(*ids)
    for side in (0, 1):
        sums, *dropped = inputs[side::2]
        assert (sums != 0).all()
        for x in dropped:
            kept = x != 0
            assert abs(kept.float().mean() - (1 - p)) < 0.02
            assert_close(x, kept * sums / (1 - p))
            assert kept.any(-1).all(), "no whole vector"
            assert not torch.equal(kept[0], kept[2])
            assert not torch.equal(kept[:, 0], kept[:, 1])
            shares = kept.float().mean((0, 2))
            assert (abs(shares - (1 - p)) < 0.05).all()
            shares = kept.float().mean((1, 2))
            assert shares.max() < 1


def build(layer: nn.Module) -> list:
    """Kinds of a layer and of all its parts, with sizes and options."""
    plain = bool | int | float | str | tuple
    return [
        (
            type(part),
            {k: v for k, v in vars(part).items() if isinstance(v, plain)},
        )
        for part in layer.modules()
    ]


def test_stacks_have_N_layers_of_one_build_with_weights_of_their_own():
    """Section 3.1: N layers, and not one layer N times."""
    source, target = sentences(5, 3, 8), sentences(4, 6, 2)
    real, mask = target != 0, padding_mask(source)
    for N, training in ((1, False), (3, True), (7, False)):
        model = small(N=N).double().train(training)
        weights = []
        for stack in (model.encoder, model.decoder):
            assert len(stack.layers) == N
            builds = [build(layer) for layer in stack.layers]
            assert builds == N * builds[:1]
            for layer in stack.layers:
                own = layer.named_parameters(remove_duplicate=False)
                weights += [weight for _, weight in own]
        places = {weight.data_ptr() for weight in weights}
        assert len(places) == len(weights)
        drawn = [weight for weight in weights if weight.dim() == 2]
        assert len({weight[0, 0].item() for weight in drawn}) == len(drawn)
        x = model.embed(source, model.source_embedding)
        for layer in model.encoder.layers:
            x = layer(x, mask)
        assert torch.equal(model.encode(source), x)

        memory, x = x, model.embed(target, model.target_embedding)
        for layer in model.decoder.layers:
            x = layer(x, memory, decoder_mask(target), mask)
        found = model.decode(target, memory, source)
        assert_close(found[real], x[real])
        parts = decode_in_parts(model, target, memory, source)
        assert_close(parts[real], x[real])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_feed_forward_parameters_differ_from_layer_to_layer(norm):
    """Section 3.3, in the models that are trained."""
    model = small(N=6, norm=norm)
    layers = [*model.encoder.layers, *model.decoder.layers]
    networks = [layer.feed_forward for layer in layers]
    for name, _ in networks[0].named_parameters():
        weights = [network.get_parameter(name) for network in networks]
        assert len({weight.data_ptr() for weight in weights}) == 12
        if name.endswith("weight"):
            for one, other in combinations(weights, 2):
                assert not torch.equal(one, other)
    for training in (True, False):  # and each of them is used
        model.train(training).zero_grad()
        model(SOURCE, TARGET).logsumexp(-1).sum().backward()
        for network in networks:
            for weight in network.parameters():
                assert weight.grad is not None and weight.grad.any()


def test_no_recurrence_no_convolution():
    for norm in ("post", "pre"):
        config = TransformerConfig.tiny(13, norm=norm)
        kinds = {type(m).__name__ for m in Transformer(config).modules()}
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
        } | ({"Identity"} if norm == "post" else set())
    for norm, training in product(["post", "pre"], [True, False]):
        no_position_hears_of_another_without_attention(norm, training)


def no_position_hears_of_another_without_attention(norm, training):
    model = small(N=3, norm=norm).double().train(training)
    ids = torch.randint(4, 12, (3, 14))
    other = ids.clone()
    other[1, 2] = 12
    here = ids != other  # in one sentence, at one place
    memory = model.encode(ids)
    assert torch.equal(
        model.hidden(ids, other), model.decode(other, memory, ids)
    ), "nothing between the stacks"
    # How two words attend to one another is for no third to say.
    scores = []
    for read in ids, other:
        with record_attention(model) as maps:
            model.encode(read)
        logs = maps["encoder.layers.0.self_attention"].log()
        logs = logs - logs[..., :1]
        logs[..., 2] = 0  # what the changed word asks, and is asked
        logs[..., 2, :] = 0
        scores.append(logs)
    assert_close(*scores)

    def each_to_itself(read):
        alone = torch.eye(14, dtype=torch.bool)
        x = model.embed(read, model.source_embedding)
        memory = model.encoder(x, alone)
        x = model.embed(read, model.target_embedding)
        return model.project(model.decoder(x, memory, alone, alone))

    def moved(run):
        return (run(other) - run(ids)).abs().amax(-1) > 1e-9

    assert torch.equal(moved(each_to_itself), here)
    silence_attention(model)
    for run in (
        model.encode,
        lambda target: model(ids, target),
        lambda target: decode_in_parts(model, target, memory, ids),
    ):
        assert torch.equal(moved(run), here)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(norm="rms"), ["norm='rms'", "post"]),
        (dict(positions="rotary"), ["rotary", "sinusoid"]),
        (dict(tie="all"), ["tie='all'", "three-way"]),
        (dict(h=3), ["h=3", "d_model=16", "d_k"]),
        (dict(d_model=15, h=5), ["d_model=15", "even"]),
        (dict(init="kaiming"), ["init='kaiming'", "packed"]),
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
    for config, d_model, d_ff, h, p in (
        (TransformerConfig.base(50), 512, 2048, 8, 0.1),
        (TransformerConfig.big(50), 1024, 4096, 16, 0.3),
    ):
        with torch.device("meta"):  # shapes without memory
            model, ids = Transformer(config), torch.ones(2, 7).long()
        assert model.output_weight.shape == (50, d_model)
        assert len(model.encoder.layers) == len(model.decoder.layers) == 6
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                for w in module.w_q, module.w_k, module.w_v:
                    assert w.weight.shape == (h * 64, d_model)
                assert module.w_o.weight.shape == (d_model, h * 64)
                assert module.dropout == 0
            if isinstance(module, FeedForward):
                assert module.w_1.weight.shape == (d_ff, d_model)
                assert module.w_2.weight.shape == (d_model, d_ff)
        # What is there is used: 18 attentions, and dropout after each,
        # after each feed-forward network and on both sums.
        calls = []
        count = partial(
            lambda calls, module, *_: calls.append(module.p), calls
        )
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.register_forward_hook(count)
        with record_attention(model) as maps:
            model(ids, ids)
        assert len(maps) == 18
        assert {x.shape for x in maps.values()} == {(2, h, 7, 7)}
        assert sorted(calls) == 12 * [0.0] + (18 + 12 + 2) * [p]
    assert TransformerConfig.base(50) == TransformerConfig(50)
    assert TransformerConfig.base(50, h=4).h == 4
    assert TransformerConfig.big(50, h=8).h == 8
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


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_goes_in_and_nothing_comes_out(shape):
    """No sentence, or sentences of no piece: shapes, no error."""
    model = small().eval()
    nothing = torch.zeros(shape, dtype=torch.long)
    assert model(nothing, nothing).shape == (*shape, 13)


def test_causal_only_equals_the_papers_two_masks():
    """In training on a CPU bit for bit, and the gradients too."""
    model = small(N=3, dropout=0.2).train()
    source, target = sentences(9, 4, 7), sentences(20, 24, 7)
    real = target != 0
    found = []
    for mask in None, decoder_mask(target):
        model.zero_grad()
        torch.manual_seed(1)
        memory = model.encode(source)
        x = model.embed(target, model.target_embedding)
        hidden = model.decoder(x, memory, mask, padding_mask(source))[real]
        hidden.tanh().sum().backward()
        grads = [
            p.grad.clone() for p in model.parameters() if p.grad is not None
        ]
        found.append([hidden, *grads])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_evaluating_gives_each_module_its_own_mode_back():
    model = small()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(KeyError), evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not model(SOURCE, TARGET).requires_grad
        raise KeyError
    assert [module.training for module in model.modules()] == modes
    assert model(SOURCE, TARGET).requires_grad
