"""One model four times: ours, PyTorch's, Hugging Face's, CTranslate2's.

All get the same weights, so all must give the same answers: that is how
the benchmark knows that they do the same work.
"""

from pathlib import Path

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from transformer_lib.embeddings import BOS, EOS, PAD, UNK
from transformer_lib.export import _ctranslate2_spec
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.positions import sinusoids


def random_model(config: TransformerConfig) -> Transformer:
    """Ours. Its pad, bos and eos never win, so that no output ends."""
    torch.manual_seed(0)
    model = Transformer(config)
    with torch.no_grad():
        model.output_weight[[PAD, BOS, EOS]] = 0.0
    return model


@torch.no_grad()
def as_torch(model: Transformer) -> nn.Transformer:
    """`torch.nn.Transformer` with our weights and our dropouts."""
    c = model.config
    sizes = c.d_model, c.h, c.N, c.N, c.d_ff, c.dropout
    theirs = nn.Transformer(*sizes, batch_first=True)
    theirs.encoder.norm = theirs.decoder.norm = None
    for ours, other in zip(
        [*model.encoder.layers, *model.decoder.layers],
        [*theirs.encoder.layers, *theirs.decoder.layers],
        strict=True,
    ):
        attentions = {"self_attn": ours.self_attention}
        if hasattr(ours, "cross_attention"):
            attentions["multihead_attn"] = ours.cross_attention
        for name, a in attentions.items():
            b = getattr(other, name)
            three = a.w_q, a.w_k, a.w_v
            b.in_proj_weight.copy_(torch.cat([w.weight for w in three]))
            b.in_proj_bias.copy_(torch.cat([w.bias for w in three]))
            b.out_proj.load_state_dict(a.w_o.state_dict())
            b.dropout = 0.0
        other.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
        other.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
        other.dropout.p = 0.0  # inside the feed-forward network
        for i, residual in enumerate(ours.residuals, 1):
            norm = getattr(other, f"norm{i}")
            norm.load_state_dict(residual.norm.state_dict())
    return theirs


@torch.no_grad()
def as_marian(model: Transformer, attention: str) -> MarianMTModel:
    """Hugging Face's, with our weights and this kind of attention."""
    c = model.config
    sizes = {"layers": c.N, "attention_heads": c.h, "ffn_dim": c.d_ff}
    sides = ("encoder", "decoder")
    special = ("bos_token_id", "decoder_start_token_id")
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=c.vocab_size,
            d_model=c.d_model,
            **{f"{s}_{k}": n for k, n in sizes.items() for s in sides},
            **dict.fromkeys(special, BOS),
            pad_token_id=PAD,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            activation_function="relu",
            scale_embedding=True,
            dropout=c.dropout,
            max_position_embeddings=c.max_length,
            attn_implementation=attention,
        )
    )
    theirs.model.shared.weight.copy_(model.output_weight)
    table = sinusoids(c.max_length, c.d_model)
    names = {
        "self_attn": "self_attention",
        "encoder_attn": "cross_attention",
    }
    for side in sides:
        stack = getattr(theirs.model, side)
        stack.embed_positions.weight.copy_(table)
        for a, b in zip(
            getattr(model, side).layers, stack.layers, strict=True
        ):
            norms = []
            for theirs_name, name in names.items():
                if hasattr(a, name):
                    copy_attention(getattr(a, name), getattr(b, theirs_name))
                    norms.append(getattr(b, f"{theirs_name}_layer_norm"))
            b.fc1.load_state_dict(a.feed_forward.w_1.state_dict())
            b.fc2.load_state_dict(a.feed_forward.w_2.state_dict())
            norms.append(b.final_layer_norm)
            for residual, norm in zip(a.residuals, norms, strict=True):
                norm.load_state_dict(residual.norm.state_dict())
    return theirs


def copy_attention(ours: nn.Module, theirs: nn.Module) -> None:
    """The four projections of one attention, into Hugging Face's."""
    ends = {"q_proj": "w_q", "k_proj": "w_k", "v_proj": "w_v"}
    for name, ours_name in (ends | {"out_proj": "w_o"}).items():
        state = getattr(ours, ours_name).state_dict()
        getattr(theirs, name).load_state_dict(state)


def convert(model: Transformer, folder: Path) -> None:
    """Write ours the way CTranslate2 reads it, ids for pieces."""
    tokens = [str(i) for i in range(model.config.vocab_size)]
    spec = _ctranslate2_spec(model, tokens)
    spec.config.unk_token = str(UNK)
    spec.save(str(folder))
