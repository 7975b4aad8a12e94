# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

from transformer_lib.attention import *
from transformer_lib.batching import *
from transformer_lib.beams import *
from transformer_lib.checkpoints import *
from transformer_lib.cli import *
from transformer_lib.corpora import *
from transformer_lib.decoding import *
from transformer_lib.embeddings import *
from transformer_lib.evaluation import *
from transformer_lib.layer_types import *
from transformer_lib.layers import *
from transformer_lib.loss import *
from transformer_lib.masks import *
from transformer_lib.model import *
from transformer_lib.positions import *
from transformer_lib.runs import *
from transformer_lib.schedule import *
from transformer_lib.tokenization import *
from transformer_lib.training import *
from transformer_lib.translator import *
