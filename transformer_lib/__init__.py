# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. A name is
imported when it is first used, so that `import transformer_lib` is quick
and loads no torch.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

_HOME = {}  # name: its module
for line in """
embeddings BOS EOS Embeddings PAD UNK
positions LearnedPositions SinusoidalPositions sinusoids
attention MultiHeadAttention attention record_attention
masks causal_mask decoder_mask padding_mask
layers Decoder DecoderLayer Encoder EncoderLayer FeedForward Residual
model Transformer TransformerConfig
layer_types ConvolutionalLayer RecurrentLayer SelfAttentionLayer neighbourhood_mask restricted_attention
corpora CORPORA ParallelCorpus data_folder fetch load_corpus read_parallel
tokenization BPETokenizer SPECIAL
batching Batch TokenBatches collate encode_pairs
loss perplexity projected_losses smoothed_loss smoothing_share validation_loss
schedule TrainingConfig adam learning_rate
checkpoints average_checkpoints checkpoint_files load_checkpoint load_config load_model save_checkpoint save_config save_model write_atomically
training History check_settings fixed_settings pick_device train worker
decoding DecoderCache Hypotheses evaluating greedy_decode length_limits next_logs
beams beam_search decode_all length_penalty
evaluation Score bleu chrf evaluate published_bleu
translator AttentionMaps Translator bundled_models
cli main
""".strip().splitlines():
    module, *names = line.split()
    _HOME |= dict.fromkeys(names, module)
__all__ = sorted(_HOME)


class _Package(ModuleType):
    """Where a module and a function share a name, the function wins."""

    def __getattr__(self, name):
        if name == "__version__":
            return version("executable-transformer")
        if name in _HOME:
            module = import_module(f"{__name__}.{_HOME[name]}")
            return getattr(module, name)
        if name in _HOME.values():
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"{__name__} has no {name!r}", name=name)

    def __setattr__(self, name, value):
        # Importing a module sets its name here: not over a function's.
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*super().__dir__(), *_HOME, *_HOME.values()})


sys.modules[__name__].__class__ = _Package
