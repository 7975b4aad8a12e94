"""Marian models in Hugging Face Transformers, with their defaults.

    python -m transformer_conformance --example huggingface > my_adapter.py

It needs `pip install transformers`. Put your own configuration or class
in place of Marian's, and keep the functions.
"""

import transformers

PAD, BOS, EOS = 0, 0, 3  # padding begins the decoder's input


def build(vocab_size, N, d_model, d_ff, h, dropout):
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=N,
        decoder_layers=N,
        encoder_ffn_dim=d_ff,
        decoder_ffn_dim=d_ff,
        encoder_attention_heads=h,
        decoder_attention_heads=h,
        dropout=dropout,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        bos_token_id=None,
        scale_embedding=True,
        max_position_embeddings=256,
    )
    return transformers.MarianMTModel(config)


def logits(model, source_ids, target_ids):
    mask = (source_ids != PAD).long()
    return model(
        input_ids=source_ids,
        attention_mask=mask,
        decoder_input_ids=target_ids,
        use_cache=False,
    ).logits


def encode(model, source_ids):
    mask = (source_ids != PAD).long()
    encoder = model.get_encoder()
    return encoder(source_ids, attention_mask=mask).last_hidden_state


def greedy(model, source_ids, max_extra):
    model.eval()  # generate leaves that to its caller
    out = model.generate(
        input_ids=source_ids,
        attention_mask=(source_ids != PAD).long(),
        num_beams=1,
        do_sample=False,
        max_new_tokens=source_ids.size(1) - 1 + max_extra,
        bad_words_ids=[[PAD]],
    )
    return out[0, 1:].tolist()
