"""Where the book explains what a probe is about, and why it matters."""

import os

# The chapters in their folders; the site's own list is _toc.yml.
FOLDERS = {
    "start": "sentence",
    "architecture": "background embeddings positions attention masks layers "
    "model",
    "training": "batching loss schedule training checkpoints",
    "translating": "decoding beams",
}

# What follows from a mistake there, or what the section shows.
CONSEQUENCES = {
    "background-distance": "Any two words meet in one step of attention, "
    "however far apart they are. It was invented for that.",
    "embeddings-lookup": "Vectors that get no gradient stay as random as "
    "they began.",
    "embeddings-tying": "One matrix has three jobs, and a size that suits "
    "one of them can spoil another.",
    "embeddings-factor": "Without the factor, positions are larger than "
    "words and drown them.",
    "positions-sum": "A sum forgets the order of its terms. Without "
    "positions the encoder reads a bag of words.",
    "positions-module": "Without positions the decoder cannot tell which "
    "of its earlier words came first.",
    "positions-sinusoids": "A model learns with nearly any table of "
    "positions, so no curve of the loss shows a slip here.",
    "attention-scaled": "With a wrong axis or factor the weights still look "
    "like weights, and the model still learns a little.",
    "attention-hand": "One query is computed by hand there, so you can "
    "compare number by number.",
    "attention-multi-head": "Four matrices without biases; and if heads are "
    "cut along the wrong axis, the future leaks past the mask.",
    "attention-uses": "One function is used three times. Whose keys it gets "
    "decides whether the decoder reads the source at all.",
    "attention-averaging": "One head that looks at two places gets their "
    "mean; several heads keep them apart.",
    "masks-infinity": "A weight set to zero after the softmax leaves the "
    "others too small; a score of minus infinity does not.",
    "masks-padding": "Where padding is seen, a sentence's translation "
    "depends on the sentences beside it in the batch.",
    "masks-causal": "What each position of the decoder may see. If that is "
    "the next word, it learns to copy, and has nothing to copy when it "
    "translates.",
    "layers-feed-forward": "Without the ReLU the network's two matrices are "
    "one, and its inner width buys nothing.",
    "layers-residual": "Whether the norm comes before or after the addition "
    "decides whether training needs a warm-up.",
    "layers-dropout": "Where dropout falls and where it does not; left "
    "on, it makes two translations of one sentence differ.",
    "layers-decoder-layer": "Only the sub-layer in the middle carries "
    "anything from the source into the translation.",
    "layers-stacks": "A layer that is skipped costs memory and learns "
    "nothing, and no error says so.",
    "model-transformer": "All parts put together, to lay yours beside.",
    "model-initialisation": "The first loss, before any training, already "
    "shows weights that begin too large.",
    "sentence-teacher": "Mask and shift let one pass train on all positions "
    "at once; here is what goes in and what comes out.",
    "batching-batch": "Without the shift the decoder is asked for the word "
    "that it has just read: it learns to copy.",
    "loss-smoothed": "Smoothing keeps a model from being too sure, and how "
    "its share is spread changes the number that you print.",
    "loss-perplexity": "If padding counts, the loss depends on how you "
    "batch, and two losses cannot be compared.",
    "schedule-rate": "A rate that peaks too high or too early makes the "
    "loss jump, and it may stay there.",
    "schedule-adam": "With a beta of 0.98 Adam averages over about 50 "
    "steps, with its default of 0.999 over about 1,000.",
    "training-loop": "The loop line by line, with what each call changes.",
    "training-step": "In a mean of means a word of a small batch counts "
    "more than a word of a large one.",
    "checkpoints-average": "What the mean of the last few checkpoints gains, "
    "and when it gains nothing.",
    "decoding-greedy": "A model that has learnt well translates noise if "
    "its cache miscounts positions or dropout is still on.",
    "beams-search": "Searches differ without an error in what may end, when "
    "they stop, and what they count.",
    "beams-proof": "With a vocabulary of a few words all outputs can be "
    "tried, and a search that misses the best one is found out.",
}


# Where `make serve` shows the book.
LOCAL = "http://localhost:8000"


def page(label: str) -> str:
    """The address of a label in the book.

    The environment variable `TRANSFORMER_LIB_BOOK` holds the site's
    address; without it, that of `make serve` is taken.
    """
    chapter = label.partition("-")[0]
    [folder] = [x for x, names in FOLDERS.items() if chapter in names.split()]
    book = os.environ.get("TRANSFORMER_LIB_BOOK", "").rstrip("/") or LOCAL
    anchor = label.replace("_", "-")
    return f"{book}/book/{folder}/{chapter}.html#{anchor}"


def explained(label: str) -> str:
    """The chapter of a label, and what follows from a mistake there."""
    return f"{label.partition('-')[0]}: {CONSEQUENCES[label]}"
