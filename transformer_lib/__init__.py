# Collected from the chapters by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. Public names
are imported when they are first used, so that `import transformer_lib`
costs next to nothing.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from transformer_lib.attention import *  # noqa: F403
    from transformer_lib.batching import *  # noqa: F403
    from transformer_lib.beams import *  # noqa: F403
    from transformer_lib.checkpoints import *  # noqa: F403
    from transformer_lib.cli import *  # noqa: F403
    from transformer_lib.corpora import *  # noqa: F403
    from transformer_lib.cost import *  # noqa: F403
    from transformer_lib.decoding import *  # noqa: F403
    from transformer_lib.embeddings import *  # noqa: F403
    from transformer_lib.evaluation import *  # noqa: F403
    from transformer_lib.grammar import *  # noqa: F403
    from transformer_lib.layer_types import *  # noqa: F403
    from transformer_lib.layers import *  # noqa: F403
    from transformer_lib.loss import *  # noqa: F403
    from transformer_lib.masks import *  # noqa: F403
    from transformer_lib.model import *  # noqa: F403
    from transformer_lib.positions import *  # noqa: F403
    from transformer_lib.runs import *  # noqa: F403
    from transformer_lib.schedule import *  # noqa: F403
    from transformer_lib.tokenization import *  # noqa: F403
    from transformer_lib.training import *  # noqa: F403
    from transformer_lib.translator import *  # noqa: F403

# name: module and anchor of its chapter
_HOME = {
    "ADJECTIVES": "grammar grammar-words",
    "AttentionMaps": "translator translator-class",
    "BOS": "tokenization tokenization-special",
    "BPETokenizer": "tokenization tokenization-bpe",
    "Batch": "batching batching-batch",
    "Beams": "beams beams-search",
    "CHOICES": "model model-config",
    "CORPORA": "corpora corpora-files",
    "ConvolutionalLayer": "layer_types layer_types-convolutional",
    "DETERMINERS": "grammar grammar-words",
    "Decoder": "layers layers-stacks",
    "DecoderCache": "decoding decoding-cache",
    "DecoderLayer": "layers layers-decoder-layer",
    "EOS": "tokenization tokenization-special",
    "Embeddings": "embeddings embeddings-module",
    "EncodedPairs": "batching batching-pairs",
    "Encoder": "layers layers-stacks",
    "EncoderLayer": "layers layers-encoder-layer",
    "FORMS": "grammar grammar-sentences",
    "FeedForward": "layers layers-feed-forward",
    "History": "training training-record",
    "Hypotheses": "decoding decoding-hypotheses",
    "Ids": "batching batching-pairs",
    "LearnedPositions": "positions positions-learned",
    "MultiHeadAttention": "attention attention-multi-head",
    "NOUNS": "grammar grammar-words",
    "Options": "cli cli",
    "PAD": "tokenization tokenization-special",
    "PATTERNS": "grammar grammar-sentences",
    "ParallelCorpus": "corpora corpora-parallel",
    "ROWS": "training training-table3",
    "RecurrentLayer": "layer_types layer_types-recurrent",
    "Residual": "layers layers-residual",
    "Run": "runs runs-record",
    "SHA256": "corpora corpora-files",
    "SPECIAL": "tokenization tokenization-special",
    "SUBJECTS": "grammar grammar-words",
    "Score": "evaluation evaluation-scores",
    "SelfAttentionLayer": "layer_types layer_types-attention",
    "SinusoidalPositions": "positions positions-module",
    "SourceCache": "decoding decoding-cache",
    "Stepper": "decoding decoding-step",
    "TargetCache": "decoding decoding-cache",
    "TokenBatches": "batching batching-tokens",
    "TrainingConfig": "schedule schedule-settings",
    "Transformer": "model model-transformer",
    "TransformerConfig": "model model-config",
    "Translation": "translator translator-class",
    "Translator": "translator translator-class",
    "UNK": "tokenization tokenization-special",
    "VERBS": "grammar grammar-words",
    "WordTokenizer": "tokenization tokenization-words",
    "accumulate_gradients": "loss loss-gradients",
    "adam": "schedule schedule-adam",
    "add_published": "runs runs-later",
    "agree": "grammar grammar-sentences",
    "attention": "attention attention-scaled",
    "average_checkpoints": "checkpoints checkpoints-average",
    "batch_lengths": "cost cost-lengths",
    "beam_search": "beams beams-search",
    "bleu": "evaluation evaluation-scores",
    "bootstrap_interval": "evaluation evaluation-bootstrap",
    "bootstrap_scores": "evaluation evaluation-bootstrap",
    "build_layer": "model model-layers",
    "build_positions": "model model-layers",
    "bundled_models": "translator translator-models",
    "causal_mask": "masks masks-causal",
    "check_config": "model model-config",
    "check_sentences": "evaluation evaluation-scores",
    "checkpoints": "checkpoints checkpoints-resume",
    "chrf": "evaluation evaluation-scores",
    "collate": "batching batching-batch",
    "connections": "layer_types layer_types-path",
    "corpus_files": "corpora corpora-files",
    "data_folder": "corpora corpora-files",
    "decode_all": "beams beams-batches",
    "decoder_mask": "masks masks-causal",
    "encode_pairs": "batching batching-pairs",
    "evaluate": "evaluation evaluation-report",
    "evaluating": "decoding decoding-step",
    "fast_attention": "attention attention-fast",
    "fetch": "corpora corpora-files",
    "forward_operations": "cost cost-count",
    "greedy_decode": "decoding decoding-greedy",
    "held_out": "grammar grammar-splits",
    "hidden_states": "loss loss-gradients",
    "initialise": "model model-initialisation",
    "latest_checkpoint": "checkpoints checkpoints-resume",
    "learning_rate": "schedule schedule-rate",
    "length_limits": "decoding decoding-step",
    "length_penalty": "beams beams-length-penalty",
    "little_spanish": "grammar grammar-splits",
    "load_checkpoint": "checkpoints checkpoints-resume",
    "load_corpus": "corpora corpora-load",
    "load_model": "checkpoints checkpoints-models",
    "load_run": "runs runs-record",
    "machine": "runs runs-machine",
    "main": "cli cli-main",
    "markdown_table": "runs runs-card",
    "maximum_path_length": "layer_types layer_types-path",
    "merges": "tokenization tokenization-merges",
    "neighbourhood_mask": "masks masks-neighbourhood",
    "operations_by_time": "cost cost-time",
    "padding_mask": "masks masks-padding",
    "padding_share": "batching batching-tokens",
    "parameter_count": "model model-parameters",
    "peak_memory": "runs runs-machine",
    "perplexity": "loss loss-perplexity",
    "pick_device": "schedule schedule-hardware",
    "pick_precision": "schedule schedule-hardware",
    "preset": "training training-presets",
    "projected_loss": "loss loss-projected",
    "projected_losses": "loss loss-projected",
    "published_bleu": "evaluation evaluation-published",
    "published_form": "evaluation evaluation-published",
    "read_log": "checkpoints checkpoints-log",
    "read_parallel": "corpora corpora-own",
    "record_attention": "attention attention-record",
    "recorded_runs": "runs runs-record",
    "restricted_attention": "layer_types layer_types-restricted",
    "same_weights": "schedule schedule-workers",
    "save_checkpoint": "checkpoints checkpoints-resume",
    "save_model": "checkpoints checkpoints-models",
    "sentence": "grammar grammar-sentences",
    "sentence_batches": "cost cost-here",
    "sequential_operations": "layer_types layer_types-sequential",
    "sinusoids": "positions positions-sinusoids",
    "smoothed_loss": "loss loss-smoothed",
    "smoothing_weights": "loss loss-smoothing",
    "split_of": "corpora corpora-tatoeba",
    "start_workers": "schedule schedule-workers",
    "sum_over_workers": "schedule schedule-workers",
    "synthetic_pairs": "cost cost-lengths",
    "table3": "training training-table3",
    "table_1": "layer_types layer_types-table",
    "thing": "grammar grammar-sentences",
    "train": "training training-loop",
    "train_bpe": "tokenization tokenization-bpe",
    "training_operations": "cost cost-count",
    "update": "schedule schedule-update",
    "updates": "schedule schedule-update",
    "validation_loss": "loss loss-validation",
    "write_atomically": "checkpoints checkpoints-atomic",
    "write_card": "runs runs-card",
    "write_lines": "runs runs-card",
    "write_report": "runs runs-card",
}

# module: title and page of its chapter
_CHAPTERS = {
    "embeddings": "book/architecture/embeddings Embeddings: words as directions",
    "positions": "book/architecture/positions Positions: telling the words their places",
    "attention": "book/architecture/attention Attention: a weighted look at everything",
    "masks": "book/architecture/masks Masks: who may look at whom",
    "layers": "book/architecture/layers Layers: what stands around attention",
    "model": "book/architecture/model The whole model",
    "layer_types": "book/architecture/layer_types Why attention? Table 1, measured",
    "corpora": "book/training/corpora Sentences in two languages",
    "tokenization": "book/training/tokenization From text to numbers",
    "batching": "book/training/batching Batches that count tokens",
    "loss": "book/training/loss The loss: being wrong, and being too sure",
    "schedule": "book/training/schedule The learning rate: up a ramp, down a root",
    "checkpoints": "book/training/checkpoints Checkpoints: what a run leaves behind",
    "training": "book/training/training Training: the loop",
    "decoding": "book/translating/decoding Decoding: one piece after the other",
    "beams": "book/translating/beams Beam search: several ways at once",
    "evaluation": "book/translating/evaluation Evaluation: how good is a translation?",
    "translator": "book/translating/translator Translator: the front door",
    "cost": "book/results/cost What it costs",
    "runs": "book/appendix/runs Recorded runs",
    "cli": "book/appendix/cli The command line",
    "grammar": "book/appendix/grammar A grammar that writes a corpus",
}

__all__ = [name for name in _HOME if name not in _CHAPTERS]


class Chapter(NamedTuple):
    """Where something public is explained."""

    title: str
    source: str
    address: str

    def __str__(self) -> str:
        return f"{self.title}: {self.address}"


def where(thing: Any) -> Chapter:
    """The chapter that explains a public name, class, function or module.

    The address starts with the environment variable
    `TRANSFORMER_LIB_BOOK`, the site's own address, if it is set.

    Raises:
        LookupError: if no chapter of the book defines `thing`.
    """
    name = thing if isinstance(thing, str) else None
    if name is None:
        named = hasattr(thing, "__qualname__") or hasattr(
            thing, "__name__"
        )
        of = thing if named else type(thing)
        module = getattr(of, "__module__", of.__name__)
        if not str(module).startswith(__name__):
            raise LookupError(f"{thing!r} is not from {__name__}")
        name = getattr(of, "__qualname__", of.__name__).split(".")[0]
    name = name.removeprefix(__name__ + ".").split(".")[-1]
    module, anchor = _HOME.get(name, f"{name} {name}").split()
    if module not in _CHAPTERS:
        raise LookupError(
            f"no chapter defines {name!r}; dir({__name__}) lists names"
        )
    page, title = _CHAPTERS[module].split(" ", 1)
    book = os.environ.get("TRANSFORMER_LIB_BOOK", "").rstrip("/")
    address = f"{book}/{page}.html#{anchor}".lstrip("/")
    return Chapter(title, f"{page}.md", address)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in __all__:
        module = _HOME[name].split()[0]
        return getattr(import_module(f"{__name__}.{module}"), name)
    if name in _CHAPTERS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}"
    )


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_CHAPTERS])
