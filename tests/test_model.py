"""The whole model against PyTorch's, and what must never leak."""

import copy

import pytest
import torch
from torch import nn

from transformer_lib.decoding import DecoderCache
from transformer_lib.embeddings import Embeddings
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    parameter_count,
)
from transformer_lib.training import ROWS, table3

SMALL = dict(N=2, d_model=16, d_ff=32, h=4, dropout=0.0)
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12], [2, 9, 0, 0]])


def small(seed: int = 0, **changes) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(TransformerConfig(13, **(SMALL | changes)))


def norms(module: nn.Module) -> list[nn.LayerNorm]:
    return [
        m for m in module.modules() if isinstance(m, nn.LayerNorm)
    ]


class Theirs(nn.Module):
    """Our embeddings and projection around torch.nn.Transformer."""

    def __init__(self, ours: Transformer):
        super().__init__()
        c = ours.config
        self.ends = copy.deepcopy(ours)
        del self.ends.encoder, self.ends.decoder
        self.stacks = nn.Transformer(
            c.d_model,
            c.h,
            c.N,
            c.N,
            c.d_ff,
            dropout=0.0,
            batch_first=True,
            norm_first=c.norm == "pre",
        )
        self.stacks.encoder.use_nested_tensor = False
        if c.norm == "post":  # theirs always has the last norms
            self.stacks.encoder.norm = self.stacks.decoder.norm = None

    def forward(self, source_ids, target_ids):
        ends = self.ends
        source_pad, target_pad = source_ids == 0, target_ids == 0
        hidden = self.stacks(
            ends.embed(source_ids, ends.source_embedding),
            ends.embed(target_ids, ends.target_embedding),
            tgt_mask=~causal_mask(target_ids.size(1))[0, 0],
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
        )
        return ends.pre_softmax(hidden)


def pairs(ours: Transformer, theirs: Theirs):
    """(name, our parameters joined, their parameter)."""
    for mine, other in (
        (ours.encoder, theirs.stacks.encoder),
        (ours.decoder, theirs.stacks.decoder),
    ):
        for i, (a, b) in enumerate(
            zip(mine.layers, other.layers, strict=True)
        ):
            kinds = [("self_attention", b.self_attn)]
            if hasattr(a, "cross_attention"):
                kinds.append(("cross_attention", b.multihead_attn))
            for name, them in kinds:
                us = getattr(a, name)
                three = [us.w_q, us.w_k, us.w_v]
                yield (
                    f"{i} {name} in",
                    [m.weight for m in three],
                    them.in_proj_weight,
                )
                yield (
                    f"{i} {name}",
                    [us.w_o.weight],
                    them.out_proj.weight,
                )
                if us.w_q.bias is None:
                    continue
                yield (
                    f"{i} {name} in bias",
                    [m.bias for m in three],
                    them.in_proj_bias,
                )
                yield (
                    f"{i} {name} bias",
                    [us.w_o.bias],
                    them.out_proj.bias,
                )
            for us, them in (
                (a.feed_forward.w_1, b.linear1),
                (a.feed_forward.w_2, b.linear2),
            ):
                yield f"{i} ffn", [us.weight], them.weight
                yield f"{i} ffn bias", [us.bias], them.bias
        for us, them in zip(norms(mine), norms(other), strict=True):
            yield "norm", [us.weight], them.weight
            yield "norm bias", [us.bias], them.bias
    ends = theirs.ends
    yield (
        "source",
        [ours.source_embedding.weight],
        ends.source_embedding.weight,
    )
    yield (
        "target",
        [ours.target_embedding.weight],
        ends.target_embedding.weight,
    )
    yield "output", [ours.output_weight], ends.output_weight


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tie", ["three-way", "none"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_torch_transformer(norm, bias, tie):
    ours = small(norm=norm, bias=bias, tie=tie)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # no norm at one, no bias at zero
        for p in ours.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn(p.shape, generator=generator)
    theirs = Theirs(ours)
    with torch.no_grad():
        for name, p in theirs.stacks.named_parameters():
            if "bias" in name:
                p.zero_()
        for _, us, them in pairs(ours, theirs):
            them.copy_(torch.cat(us))
    seen = SOURCE, TARGET
    a, b = ours(*seen), theirs(*seen)
    real = TARGET != 0
    torch.testing.assert_close(a[real], b[real], atol=1e-5, rtol=1e-5)
    pull = torch.randn(a[real].shape, generator=generator)
    (a[real] * pull).sum().backward()
    (b[real] * pull).sum().backward()
    compared = set()
    for name, us, them in pairs(ours, theirs):
        torch.testing.assert_close(
            torch.cat([p.grad for p in us]),
            them.grad,
            atol=1e-5,
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )
        compared |= {id(p) for p in us}
    assert compared == {id(p) for p in ours.parameters()}


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_later_target_never_changes_earlier_logits(norm):
    model = small(norm=norm).double().eval()
    ids = torch.randint(4, 13, (3, 9))
    source = torch.randint(4, 13, (3, 6))
    for t in range(1, 9):
        changed = ids.clone()
        changed[:, t:] = torch.randint(0, 13, (3, 9 - t))
        a, b = model(source, ids), model(source, changed)
        assert torch.equal(a[:, :t], b[:, :t])


def test_later_target_has_no_gradient_on_earlier_logits():
    model = small().double()
    seen = []

    def keep(module, args, output):
        output.retain_grad()
        seen.append(output)  # the target's is the later of the two

    model.target_embedding.register_forward_hook(keep)
    model(SOURCE[:1], TARGET[:1])[0, 1].sum().backward()
    target = seen[-1].grad[0].abs().sum(-1)
    assert (target[:2] > 0).all() and (target[2:] == 0).all()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_never_changes_result_nor_gradient(norm):
    """Longer padding, and a batch against its sentences one by one."""
    results = []
    wide = (
        nn.functional.pad(SOURCE, (0, 7)),
        nn.functional.pad(TARGET, (0, 5)),
    )
    model = small(norm=norm).double()
    for source, target in ((SOURCE, TARGET), wide):
        model.zero_grad()
        logits = model(source, target)[target != 0]
        logits.logsumexp(-1).sum().backward()
        results.append(
            [logits] + [p.grad.clone() for p in model.parameters()]
        )
    model.zero_grad()
    rows = []
    for s, t in zip(SOURCE, TARGET, strict=True):
        logits = model(s[s != 0][None], t[t != 0][None])[0]
        logits.logsumexp(-1).sum().backward()
        rows.append(logits)
    results.append(
        [torch.cat(rows)] + [p.grad for p in model.parameters()]
    )
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)


def test_what_stands_in_padding_is_never_seen():
    """Even a pad vector of another value leaves every result alone."""
    model = small(tie="none").double()
    before = model(SOURCE, TARGET)[TARGET != 0]
    with torch.no_grad():
        model.source_embedding.weight[0] = 50.0
        model.target_embedding.weight[0] = -50.0
    after = model(SOURCE, TARGET)[TARGET != 0]
    assert torch.equal(before, after)


def test_two_stacks_meet_in_cross_attention_alone():
    """Section 3: the decoder sees the source through the memory."""
    model = small().eval()
    memory = model.encode(SOURCE)
    hidden = model.decode(TARGET, memory, SOURCE)
    assert memory.shape == (2, 5, 16) and hidden.shape == (2, 4, 16)
    assert torch.equal(model.project(hidden), model(SOURCE, TARGET))
    assert not torch.equal(
        hidden, model.decode(TARGET, torch.zeros_like(memory), SOURCE)
    )


@pytest.mark.parametrize("positions", ["sinusoid", "learned", "none"])
@pytest.mark.parametrize("steps", [[1, 1, 1, 1], [2, 2], [1, 3]])
def test_decode_with_cache_equals_without(positions, steps):
    model = small(positions=positions).double().eval()
    memory = model.encode(SOURCE)
    ids = torch.randint(4, 13, (2, 4))
    cache = DecoderCache(model, memory, 8)
    parts = [
        model.decode(new, memory, SOURCE, cache)
        for new in ids.split(steps, 1)
    ]
    torch.testing.assert_close(
        torch.cat(parts, 1), model.decode(ids, memory, SOURCE)
    )


@pytest.mark.parametrize("row", ROWS)
def test_parameter_count_of_every_row_of_table_3(row):
    config, _ = table3(row, 37_000)
    with torch.device("meta"):  # shapes without memory
        model = Transformer(config)
    built = sum(p.numel() for p in model.parameters())
    assert parameter_count(config)["total"] == built


@pytest.mark.parametrize(
    "changes",
    [
        dict(tie="decoder"),
        dict(tie="none"),
        dict(bias=True, h=2, d_k=3, d_v=5),
        dict(norm="pre", positions="learned", max_length=40),
        dict(positions="none", N=1),
    ],
)
def test_parameter_count_by_component(changes):
    model = small(**changes)
    count = parameter_count(model.config)
    size = {
        name: sum(
            p.numel() for p in model.get_submodule(name).parameters()
        )
        for name in ("encoder", "decoder")
    }
    for name, total in size.items():
        parts = [v for k, v in count.items() if k.startswith(name)]
        assert sum(parts) == total
    built = sum(p.numel() for p in model.parameters())
    assert count["total"] == built
    assert sum(v for k, v in count.items() if k != "total") == built


def test_base_has_the_known_size():
    base = TransformerConfig.base(37_000)
    assert parameter_count(base)["total"] == 63_045_632
    base = TransformerConfig.base(37_000, bias=True)
    assert parameter_count(base)["total"] == 63_082_496


@pytest.mark.parametrize(
    ("tie", "tables"), [("three-way", 1), ("decoder", 2), ("none", 3)]
)
def test_tying_shares_storage(tie, tables):
    model = small(tie=tie)
    weights = (
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_weight,
    )
    assert len({w.data_ptr() for w in weights}) == tables
    model(SOURCE, TARGET).sum().backward()
    assert model.output_weight.grad is not None
    assert model.output_weight.shape == (13, 16)


def test_tied_gradients_come_from_both_ends():
    """The shared gradient is the sum of the three separate ones."""
    tied, free = small().double(), small(tie="none").double()
    for name, weight in free.named_parameters():
        home = dict(tied.named_parameters(remove_duplicate=False))[
            name
        ]
        weight.data.copy_(home.data)
    for model in (tied, free):
        model(SOURCE, TARGET)[TARGET != 0].logsumexp(
            -1
        ).sum().backward()
    ends = (
        free.source_embedding,
        free.target_embedding,
        free.pre_softmax,
    )
    torch.testing.assert_close(
        tied.source_embedding.weight.grad,
        sum(e.weight.grad for e in ends),
    )
    assert all(e.weight.grad.abs().sum() > 0 for e in ends)


def test_initialisation():
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(4000, N=1, d_model=256, d_ff=512, h=4)
    )
    table = model.source_embedding.weight
    assert abs(table.std().item() * 256**0.5 - 1) < 0.01
    assert abs(table.mean().item()) < 1e-3
    assert isinstance(model.source_embedding, Embeddings)
    linears = [
        m
        for stack in (model.encoder, model.decoder)
        for m in stack.modules()
        if isinstance(m, nn.Linear)
    ]
    assert len(linears) == 4 + 2 + 8 + 2
    for linear in linears:
        bound = (6 / sum(linear.weight.shape)) ** 0.5
        assert linear.weight.abs().max() <= bound
        assert linear.weight.abs().max() > 0.99 * bound
        deviation = linear.weight.std().item()
        assert abs(deviation / (bound / 3**0.5) - 1) < 0.01
        assert linear.bias is None or (linear.bias == 0).all()
    for norm in norms(model):
        assert (norm.weight == 1).all() and (norm.bias == 0).all()


def test_layers_start_with_different_weights():
    model = small(N=3)
    for stack in (model.encoder, model.decoder):
        first, *rest = stack.layers
        for other in rest:
            for (name, a), b in zip(
                first.named_parameters(),
                other.parameters(),
                strict=True,
            ):
                assert a.data_ptr() != b.data_ptr()
                if a.dim() == 2:
                    assert not torch.equal(a, b), name


def test_final_norm_with_pre_norm_alone():
    assert not hasattr(small().encoder, "norm")
    assert not hasattr(small().decoder, "norm")
    pre = small(norm="pre")
    assert isinstance(pre.encoder.norm, nn.LayerNorm)
    assert isinstance(pre.decoder.norm, nn.LayerNorm)


def test_dropout_zero_means_no_randomness():
    model = small().train()
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model = small(dropout=0.5).train()
    assert not torch.equal(
        model(SOURCE, TARGET), model(SOURCE, TARGET)
    )


def test_dropout_falls_on_the_embedding_sums():
    model = small(dropout=0.5).train()
    x = model.embed(SOURCE, model.source_embedding)
    assert 0.3 < (x == 0).float().mean() < 0.7


def test_state_dict_goes_there_and_back():
    a, b = small(0), small(1)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(SOURCE, TARGET), b(SOURCE, TARGET))
    assert b.output_weight is b.source_embedding.weight


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(norm="rms"), ["norm='rms'", "post"]),
        (
            dict(positions="rotary"),
            ["positions='rotary'", "sinusoid"],
        ),
        (dict(tie="all"), ["tie='all'", "three-way"]),
        (dict(h=3), ["h=3", "d_model=16", "d_k"]),
        (dict(d_model=15, h=5), ["d_model=15", "even"]),
        (dict(N=0), ["N=0"]),
        (dict(dropout=1.0), ["dropout=1.0"]),
        (dict(vocab_size=1.5), ["vocab_size=1.5"]),
    ],
)
def test_impossible_sizes_are_refused(changes, words):
    with pytest.raises(ValueError) as error:
        TransformerConfig(**({"vocab_size": 13} | SMALL | changes))
    for word in words:
        assert word in str(error.value)


def test_h_need_not_divide_when_both_sizes_are_given():
    model = small(h=3, d_k=4, d_v=6)
    assert model(SOURCE, TARGET).shape == (2, 4, 13)


def test_a_single_sentence_must_be_a_batch_of_one():
    with pytest.raises(ValueError, match="ids\\[None\\]"):
        small()(SOURCE[0], TARGET[0])


def test_named_sizes():
    tiny = TransformerConfig.tiny(8000)
    assert (tiny.N, tiny.d_model, tiny.d_ff, tiny.h) == (
        4,
        128,
        256,
        4,
    )
    big = TransformerConfig.big(37_000)
    assert (big.N, big.d_model, big.d_ff, big.h) == (
        6,
        1024,
        4096,
        16,
    )
    assert big.dropout == 0.3
    assert TransformerConfig.base(37_000) == TransformerConfig(37_000)
    assert TransformerConfig.tiny(10, norm="pre").norm == "pre"


def test_masks_are_those_of_the_chapter():
    model = small()
    seen = {}
    model.encoder.register_forward_pre_hook(
        lambda m, args: seen.update(mask=args[1])
    )
    model.encode(SOURCE)
    assert torch.equal(seen["mask"], padding_mask(SOURCE))
