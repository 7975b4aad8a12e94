# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. A public
name is imported when it is first used, so that `import transformer_lib`
is quick and loads no torch. The same names are in __init__.pyi, which
editors read.
"""

from importlib import import_module

_NAMES = """
embeddings BOS EOS Embeddings PAD UNK
positions LearnedPositions SinusoidalPositions sinusoids
attention MultiHeadAttention fused_attention fused_is_faster record_attention
masks causal_mask padding_mask
layers Decoder DecoderLayer Encoder EncoderLayer FeedForward LayerCache
layers Residual
model Cache Transformer TransformerConfig evaluating foreign_parts
model initialize_weights without_cudnn
corpora ParallelCorpus SPLITS data_folder decode_line is_utf16 load_corpus
corpora read_parallel
tokenization BPETokenizer Tokenizer
batching Batch TokenBatches collate encode_pairs leave_out_long
loss perplexity projected_losses smoothed_loss validation_loss
schedule TrainingConfig adam learning_rate
checkpoints SavedModel average_checkpoints checkpoint_files load_checkpoint
checkpoints load_config load_model save_checkpoint save_config save_model
checkpoints write_atomically
training Gradients History train worker
replays Replays why_not_replayed
decoding DecoderCache Hypothesis greedy_decode next_log_probabilities
beams Translation beam_search decode_all length_divisor longest_source
beams translate_all
evaluation Score bleu chrf evaluate published_bleu
translator AttentionMaps Translator bundled_models
experiment Experiment describe_machine describe_run pick_device run_experiment
experiment write_report
export export_model
cli PRESETS main
"""
_HOME, _MODULES = {}, set()
for _module, *_names in map(str.split, _NAMES.strip().splitlines()):
    _MODULES.add(_module)
    _HOME |= dict.fromkeys(_names, _module)
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name):
    """A module, or a public name of one."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"{__name__} has no {name!r}", name=name)


def __dir__():
    return sorted({*globals(), *_HOME, *_MODULES})
