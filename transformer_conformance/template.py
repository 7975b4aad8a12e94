"""What the conformance suite calls. Fill in what you have, delete the
rest: every function is optional. Then

    python -m transformer_conformance my_adapter.py

Adapters that run as they are: `--example nn`, `huggingface` or `gpt`.

A model for the suite is small (a vocabulary of 8 to 100, one to three
layers, 16 to 64 numbers wide) and has random weights. It is called with
sentences of 1 to 60 tokens. Keep it in single precision: what is measured
is lost in half precision's rounding.

Is yours a decoder alone, as GPT is? Give `logits(model, ids)`, with two
arguments. In `greedy` source_ids is then a prompt behind BOS, and the
output what follows it, at most max_extra tokens.

Does your model take strings? The ids are words as good as any: give it
a vocabulary in which each word is the number itself. Does it pad every
sentence to a fixed length? Build it for 64, and cut the logits to
target_len; better still, give it each batch at its own length, because
some probes look at what happens inside.

The suite calls train() and eval() of a PyTorch model. Any other model
cannot be told its mode, so compute as in evaluation, without dropout.
"""

# Special ids of your implementation.
PAD, BOS, EOS = 0, 2, 3
ARRAYS = "torch"  # or "numpy": what your functions take and return


# A model: these two let most probes run.


def build(vocab_size, N, d_model, d_ff, h, dropout):
    """A new model; source and target have the same vocabulary."""
    raise NotImplementedError


def logits(model, source_ids, target_ids):
    """Scores (batch, target_len, vocab_size) before the softmax.

    source_ids (batch, source_len): each row ends in EOS, then PAD; one
    probe has a row of nothing but PAD. There is no BOS: if your encoder
    reads one, put it in front, here and in `encode`, which then cuts its
    vector off. Cut EOS off if yours has none.
    target_ids (batch, target_len) is what the decoder reads, BOS first.
    Make your masks here, as your training does.
    """
    raise NotImplementedError


def encode(model, source_ids):
    """The encoder's output, (batch, source_len, d_model)."""
    raise NotImplementedError


def greedy(model, source_ids, max_extra):
    """The output for one sentence (1, source_len): a list of ids.

    Without BOS, with EOS; at most max_extra longer than the source is
    without its eos. The model may be in training mode: call model.eval()
    if your decoding does.
    """
    raise NotImplementedError


def greedy_batch(model, source_ids, max_extra):
    """The outputs for several sentences at once, padded with PAD to
    (batch, source_len): a list for each, as `greedy` returns it."""
    raise NotImplementedError


def beam_search(model, source_ids, beam_size, alpha, max_extra):
    """The best output for one sentence, as `greedy` returns it."""
    raise NotImplementedError


# Parts


def attention(query, key, value, mask=None):
    """The output (batch, h, query_len, d_v), or it and the weights.

    mask is boolean, (batch, h, query_len, key_len): True = may attend.
    """
    raise NotImplementedError


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    """(batch, query_len, d_model): your module with these matrices.

    x is (batch, query_len, d_model), memory (batch, key_len, d_model).
    The matrices are (d_model, d_model), for x @ w_q: an nn.Linear has
    w_q.T as its weight. If yours has biases, make them zero. mask is
    boolean, (batch, 1, 1, key_len), True = may attend; yours may need
    it as (batch, query_len, key_len).
    """
    raise NotImplementedError


def feed_forward(x, w_1, b_1, w_2, b_2):
    """Equation 2: your module with these matrices and biases."""
    raise NotImplementedError


def positions(length, d_model):
    """The table of positional encodings, (length, d_model)."""
    raise NotImplementedError


def embeddings(vocab_size, d_model):
    """An object with embed(ids), project(hidden) and parameters(), as
    an nn.Module has it: one matrix for words and for scores."""
    raise NotImplementedError


def masks(source_ids, target_ids):
    """The source's mask (batch, 1, 1, source_len) and the decoder's
    (batch, 1, target_len, target_len): boolean, True = may attend."""
    raise NotImplementedError


def encoder_layer(x, mask, attention, network, norm_1, norm_2):
    """An encoder layer from parts that are given: attention(x, memory,
    mask), network(x), norm_1(x), norm_2(x)."""
    raise NotImplementedError


def decoder_layer(y, memory, masks, attentions, network, norms):
    """A decoder layer; masks are the source's and the target's,
    attentions that to y itself and that to the memory, norms three."""
    raise NotImplementedError


# Training


def shift(targets):
    """What the decoder reads, and the labels: both (batch, target_len),
    both padded with PAD: put it where yours has -100.

    targets are lists of ids, each with EOS at its end.
    """
    raise NotImplementedError


def loss(logits, labels, smoothing):
    """One number, the mean over the real tokens, for logits (batch, len,
    vocab_size), labels (batch, len) padded with PAD, and the share that
    is smoothed. If yours smooths nothing, raise NotImplementedError for
    a share above 0: the rest is tried without."""
    raise NotImplementedError


def learning_rate(step, d_model, warmup_steps):
    """The rate of an update, at the step that your loop counts; the
    first is 1. If it counts more than one for each update, do so here."""
    raise NotImplementedError


def optimizer(model):
    """The optimizer that your training makes for a model."""
    raise NotImplementedError


def update(model, optimizer, batches):
    """One step of the weights, from one batch or several. If your loop
    clears the gradients, give `updates` the loop instead: what `update`
    clears for it would hide that it doesn't.

    A batch has .source_ids, .target_ids, .labels and .tokens, the
    number of labels that are not padding; model(source_ids, target_ids)
    gives logits. The optimizer is plain SGD. If your loop takes a step
    for each batch, raise NotImplementedError for more than one.
    """
    raise NotImplementedError


def average(states):
    """The mean of several state_dicts."""
    raise NotImplementedError


def updates(model, optimizer, groups):
    """Instead of `update`: a training loop, a step for each group of
    batches."""
    raise NotImplementedError


def beam(next_logs, beam_size, alpha, limit):
    """Instead of `beam_search`: the best ids, at most `limit` of them,
    when next_logs(ids) gives the log-probabilities of what follows."""
    raise NotImplementedError
