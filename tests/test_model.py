"""The whole model against PyTorch's, and what must never leak."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from translators import (
    as_torch,
    decode_in_parts,
    silence_attention,
    slopes_of,
    sources,
)

from transformer_lib.attention import MultiHeadAttention, record_attention
from transformer_lib.embeddings import Embeddings
from transformer_lib.layers import FeedForward
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    evaluating,
    in_training,
    initialize_weights,
)

SMALL = dict(N=2, d_model=16, d_ff=32, h=4, dropout=0.0)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12], [2, 9, 0, 0]])


def small(seed: int = 0, **changes) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(TransformerConfig(13, **(SMALL | changes)))


def of_the_stacks(named: dict) -> dict:
    """What is not of the embeddings."""
    return {name: x for name, x in named.items() if "coder." in name}


@pytest.mark.parametrize(
    ("norm", "positions"), [("post", "sinusoid"), ("pre", "learned")]
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_torch_transformer(norm, positions):
    """Outputs, and the gradient of every weight of both stacks.

    In training and after it, at once and token by token.
    """
    ours = small(N=6, norm=norm, positions=positions, bias=True).double()
    assert {len(layer.residuals) for layer in ours.encoder.layers} == {2}
    assert {len(layer.residuals) for layer in ours.decoder.layers} == {3}
    source = sources(39, 3, 18, vocab_size=13)
    target = sources(5, 10, 2, vocab_size=13)
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
    theirs.load_state_dict(as_torch(of_the_stacks(ours.state_dict())))
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
    wanted = slopes_of(theirs)
    for training in (True, False):
        ours.train(training).zero_grad()
        a = ours(source, target)[real]
        assert_close(a, b)
        (a * pull).sum().backward()
        assert_close(as_torch(of_the_stacks(slopes_of(ours))), wanted)
        with torch.no_grad():
            pairs = zip(source.split(1), target.split(1), strict=True)
            alone = [ours(*pair) for pair in pairs]
            assert_close(torch.cat(alone)[real], b)
            memory = ours.encode(source)
            assert memory.shape == (3, 40, 16)  # a vector for each symbol
            for new in 1, [2, 1, 2, 6]:  # positions at a time
                hidden = decode_in_parts(ours, target, memory, source, new)
                assert_close(ours.project(hidden)[real], b)


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


def wanted_factor(path: str, init: str) -> float:
    """What an initialization multiplies a matrix by, written down again."""
    last = path.split(".")[-1]
    if init == "xavier" or path == "pre_softmax":
        return 1
    if "self_attention" in path and last in ("w_q", "w_k", "w_v"):
        return (2 / 4) ** 0.5  # sqrt(6 / 4d) over sqrt(6 / 2d)
    if "cross_attention" in path and last in ("w_k", "w_v"):
        return (2 / 3) ** 0.5  # sqrt(6 / 3d) over sqrt(6 / 2d)
    return 1 / 4 if init == "small" and last in ("w_o", "w_2") else 1


@pytest.mark.parametrize("init", ["xavier", "packed", "small"])
def test_initializations_differ_only_by_their_factors(init):
    """Bit for bit the same numbers as in the records."""
    changes = dict(bias=True, tie="none", init=init)
    first, model = small(**changes), small(**changes)
    torch.manual_seed(1)
    for matrix in matrices(first).values():
        nn.init.xavier_uniform_(matrix)
    torch.manual_seed(1)
    initialize_weights(model, init)
    built = matrices(small(**changes, seed=2))
    for path, matrix in matrices(model).items():
        factor = wanted_factor(path, init)
        assert torch.equal(matrix, first.get_submodule(path).weight * factor)
        bound = factor * (6 / sum(matrix.shape)) ** 0.5
        assert 0.9 * bound < built[path].abs().max() <= bound, "as told"
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert not weight.any(), name


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
    for training in (False, True, True):
        model.train(training)(*ids)
    for side in (0, 1):
        sums, *dropped = inputs[side::2]
        assert (sums != 0).all()
        for x in dropped:
            kept = x != 0
            assert_close(x, kept * sums / (1 - p))
            assert kept.any(-1).all(), "no whole vector"
            for axes in (0, 2), (1, 2), (0, 1):  # everywhere, and not alike
                shares = kept.float().mean(axes)
                assert (abs(shares - (1 - p)) < 0.25).all()
                assert len(shares.unique()) > 1
            assert abs(kept.float().mean() - (1 - p)) < 0.02


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("training", [False, True])
def test_no_recurrence_no_convolution(norm, training):
    model = small(N=3, norm=norm).double().train(training)
    wanted = (
        "Transformer Embeddings SinusoidalPositions Encoder EncoderLayer "
        "Decoder DecoderLayer MultiHeadAttention FeedForward Residual "
        "LayerNorm Linear Dropout ModuleList"
    )
    kinds = {type(module).__name__ for module in model.modules()}
    assert kinds - {"Identity"} == set(wanted.split())
    ids = torch.randint(4, 12, (3, 14))
    other = ids.clone()
    other[1, 2] = 12
    here = ids != other  # in one sentence, at one place
    memory = model.encode(ids)

    def each_to_itself(read):
        alone = torch.eye(14, dtype=torch.bool)
        x = model.embed(read, model.source_embedding)
        return model.encoder(x, alone)

    def moved(run):
        return (run(other) - run(ids)).abs().amax(-1) > 1e-9

    assert torch.equal(moved(each_to_itself), here)
    whole = model.decode(ids, memory, ids)
    assert torch.allclose(whole, model.hidden(ids, ids))
    # What is kept of earlier positions is not summed up on the way.
    assert torch.allclose(whole, decode_in_parts(model, ids, memory, ids))
    # With attention silenced no position hears of another.
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
        (dict(d_model=15, h=5), ["d_model=15", "even"]),
        (dict(init="kaiming"), ["init='kaiming'", "packed"]),
        (dict(h=0), ["h=0", "1 to inf"]),
        (dict(N=2.0), ["N=2.0", "whole number"]),
        (dict(d_k=0, d_v=4), ["d_k=0", "1 to inf"]),
        (dict(vocab_size=3), ["vocab_size=3", "4 to inf"]),
        (dict(dropout=1.5), ["dropout=1.5", "0 to 1"]),
        (dict(bias="no"), ["bias='no'", "(False, True)"]),
    ],
)
def test_impossible_sizes_are_refused(changes, words):
    sizes = {"vocab_size": 13} | SMALL | changes
    with pytest.raises(ValueError) as error:
        Transformer(TransformerConfig(**sizes))
    for word in words:
        assert word in str(error.value)


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
        # 18 attentions, and dropout after each of them, after each
        # feed-forward network and on both sums.
        called = []
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.register_forward_hook(
                    lambda one, *_, to=called: to.append(one.p)
                )
        with record_attention(model) as maps:
            model(ids, ids)
        assert len(maps) == 18
        assert {x.shape for x in maps.values()} == {(2, h, 7, 7)}
        rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
        assert sorted(rates) == 12 * [0.0] + (18 + 12 + 1) * [p]
        assert sorted(called) == sorted([*rates, p])  # two of the one sum
    assert TransformerConfig.base(50) == TransformerConfig(50)
    assert TransformerConfig(50).max_length == 512
    assert TransformerConfig.base(50, h=4).h == 4
    assert TransformerConfig.big(50, h=8).h == 8
    tiny = TransformerConfig.tiny(50, norm="pre")
    sizes = tiny.N, tiny.d_model, tiny.d_ff, tiny.h, tiny.norm
    assert sizes == (4, 128, 256, 4, "pre")


def test_nothing_goes_in_and_nothing_comes_out():
    """No sentence, or targets of no token: shapes, no error."""
    model = small().eval()
    for batch, target_len in (0, 3), (2, 0):
        source = torch.full((batch, 3), 5)
        target = torch.full((batch, target_len), 2)
        assert model(source, target).shape == (batch, target_len, 13)


REFUSED = [
    (torch.tensor([[5, 13]]), TARGET[:1], IndexError, "out of range"),
    (SOURCE.float(), TARGET, RuntimeError, "indices.* Long, Int; but got"),
    (SOURCE, TARGET.repeat(2, 1), RuntimeError, "must match"),
    (SOURCE[0], SOURCE[0], ValueError, "ids\\[None\\]"),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("source", "target", "kind", "words"), REFUSED)
def test_ids_that_cannot_be_meant_are_refused(
    source, target, kind, words, training
):
    with pytest.raises(kind, match=words):
        small().train(training)(source, target)


def test_initialized_again_a_tied_table_stays():
    model = small()
    table = model.output_weight.detach().clone()
    matrix = model.encoder.layers[0].feed_forward.w_1.weight
    before = matrix.detach().clone()
    initialize_weights(model)
    assert torch.equal(model.output_weight, table)
    assert not torch.equal(matrix, before)


def test_evaluating_gives_each_module_its_own_mode_back():
    model = small()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(KeyError), evaluating(model):
        with evaluating(model), evaluating(model):
            pass
        assert not any(module.training for module in model.modules())
        assert not model(SOURCE, TARGET).requires_grad
        raise KeyError
    assert [module.training for module in model.modules()] == modes
    assert model(SOURCE, TARGET).requires_grad


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_in_training_is_not_for_another_thread(wrapped):
    """Its dropout would be off for some of the steps, and nobody knew."""
    model = small(dropout=0.5)
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    trained = torch.compile(model, backend="eager") if wrapped else model

    def use():
        with evaluating(model):
            return any(module.training for module in model.modules())

    with ThreadPoolExecutor() as threads:
        with pytest.raises(KeyError), in_training(trained):
            assert all(module.training for module in model.modules())
            with pytest.raises(RuntimeError, match="another thread.*copy"):
                threads.submit(use).result()
            assert all(module.training for module in model.modules())
            assert not use()  # a validation, in the thread of the training
            assert all(module.training for module in model.modules())
            with evaluating(copy.deepcopy(model)):
                pass
            raise KeyError
        assert [module.training for module in model.modules()] == modes
        with evaluating(model):  # it is in training mode: one at a time
            with pytest.raises(RuntimeError, match=r"another thread.*eval"):
                threads.submit(use).result()
            with in_training(model):  # a training takes it over
                pass
        with evaluating(model.eval()), ThreadPoolExecutor(1) as other:
            assert not other.submit(use).result()  # any number
        model.train().encoder.eval()
        assert not threads.submit(use).result()
    assert [module.training for module in model.modules()] == modes
