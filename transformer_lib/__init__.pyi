# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

from transformer_lib.attention import MultiHeadAttention as MultiHeadAttention
from transformer_lib.attention import fused_attention as fused_attention
from transformer_lib.attention import fused_is_faster as fused_is_faster
from transformer_lib.attention import record_attention as record_attention
from transformer_lib.batching import Batch as Batch
from transformer_lib.batching import TokenBatches as TokenBatches
from transformer_lib.batching import collate as collate
from transformer_lib.batching import encode_pairs as encode_pairs
from transformer_lib.batching import leave_out_long as leave_out_long
from transformer_lib.beams import Translation as Translation
from transformer_lib.beams import beam_search as beam_search
from transformer_lib.beams import decode_all as decode_all
from transformer_lib.beams import length_divisor as length_divisor
from transformer_lib.beams import longest_source as longest_source
from transformer_lib.beams import translate_all as translate_all
from transformer_lib.checkpoints import SavedModel as SavedModel
from transformer_lib.checkpoints import (
    average_checkpoints as average_checkpoints,
)
from transformer_lib.checkpoints import checkpoint_files as checkpoint_files
from transformer_lib.checkpoints import load_checkpoint as load_checkpoint
from transformer_lib.checkpoints import load_config as load_config
from transformer_lib.checkpoints import load_model as load_model
from transformer_lib.checkpoints import save_checkpoint as save_checkpoint
from transformer_lib.checkpoints import save_config as save_config
from transformer_lib.checkpoints import save_model as save_model
from transformer_lib.checkpoints import write_atomically as write_atomically
from transformer_lib.cli import PRESETS as PRESETS
from transformer_lib.cli import main as main
from transformer_lib.corpora import SPLITS as SPLITS
from transformer_lib.corpora import ParallelCorpus as ParallelCorpus
from transformer_lib.corpora import data_folder as data_folder
from transformer_lib.corpora import decode_line as decode_line
from transformer_lib.corpora import is_utf16 as is_utf16
from transformer_lib.corpora import load_corpus as load_corpus
from transformer_lib.corpora import read_parallel as read_parallel
from transformer_lib.decoding import DecoderCache as DecoderCache
from transformer_lib.decoding import Hypothesis as Hypothesis
from transformer_lib.decoding import greedy_decode as greedy_decode
from transformer_lib.decoding import (
    next_log_probabilities as next_log_probabilities,
)
from transformer_lib.embeddings import BOS as BOS
from transformer_lib.embeddings import EOS as EOS
from transformer_lib.embeddings import PAD as PAD
from transformer_lib.embeddings import UNK as UNK
from transformer_lib.embeddings import Embeddings as Embeddings
from transformer_lib.evaluation import Score as Score
from transformer_lib.evaluation import bleu as bleu
from transformer_lib.evaluation import chrf as chrf
from transformer_lib.evaluation import evaluate as evaluate
from transformer_lib.evaluation import published_bleu as published_bleu
from transformer_lib.experiment import Experiment as Experiment
from transformer_lib.experiment import describe_machine as describe_machine
from transformer_lib.experiment import describe_run as describe_run
from transformer_lib.experiment import pick_device as pick_device
from transformer_lib.experiment import run_experiment as run_experiment
from transformer_lib.experiment import write_report as write_report
from transformer_lib.export import export_model as export_model
from transformer_lib.layers import Decoder as Decoder
from transformer_lib.layers import DecoderLayer as DecoderLayer
from transformer_lib.layers import Encoder as Encoder
from transformer_lib.layers import EncoderLayer as EncoderLayer
from transformer_lib.layers import FeedForward as FeedForward
from transformer_lib.layers import LayerCache as LayerCache
from transformer_lib.layers import Residual as Residual
from transformer_lib.loss import perplexity as perplexity
from transformer_lib.loss import projected_losses as projected_losses
from transformer_lib.loss import smoothed_loss as smoothed_loss
from transformer_lib.loss import validation_loss as validation_loss
from transformer_lib.masks import causal_mask as causal_mask
from transformer_lib.masks import padding_mask as padding_mask
from transformer_lib.model import Cache as Cache
from transformer_lib.model import Transformer as Transformer
from transformer_lib.model import TransformerConfig as TransformerConfig
from transformer_lib.model import evaluating as evaluating
from transformer_lib.model import foreign_parts as foreign_parts
from transformer_lib.model import initialize_weights as initialize_weights
from transformer_lib.model import without_cudnn as without_cudnn
from transformer_lib.positions import LearnedPositions as LearnedPositions
from transformer_lib.positions import (
    SinusoidalPositions as SinusoidalPositions,
)
from transformer_lib.positions import sinusoids as sinusoids
from transformer_lib.replays import Replays as Replays
from transformer_lib.replays import why_not_replayed as why_not_replayed
from transformer_lib.schedule import TrainingConfig as TrainingConfig
from transformer_lib.schedule import adam as adam
from transformer_lib.schedule import learning_rate as learning_rate
from transformer_lib.tokenization import BPETokenizer as BPETokenizer
from transformer_lib.tokenization import Tokenizer as Tokenizer
from transformer_lib.training import Gradients as Gradients
from transformer_lib.training import History as History
from transformer_lib.training import train as train
from transformer_lib.training import worker as worker
from transformer_lib.translator import AttentionMaps as AttentionMaps
from transformer_lib.translator import Translator as Translator
from transformer_lib.translator import bundled_models as bundled_models

__version__: str
