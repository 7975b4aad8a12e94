"""The Transformer of "Attention Is All You Need" in one file.

    python transformer.py

Python is all that it needs. In about a minute it learns to translate
small English sentences into Spanish, and then it translates a hundred
that it has never seen. Numbers such as 3.2.1 are the paper's sections.

Five things of the paper are left out: padding (the sentences of a batch
are read one after the other), dropout, parts of words as tokens, the
mean of the last checkpoints, and beam search.
"""

import json
import math
import random
from itertools import chain
from operator import add, mul

try:
    from math import sumprod
except ImportError:  # before Python 3.12

    def sumprod(u, v):  # the dot product
        return sum(map(mul, u, v))


# Matrices that remember
#
# To learn is to ask of each weight: if it grew a little, how would the
# loss change? That is the weight's gradient. So a matrix remembers its
# parents, the matrices that it was made from. A gradient has the shape of
# its matrix, and `back` turns a matrix's gradient into one for each of its
# parents, in their order (the chain rule).


def transposed(rows):
    return list(zip(*rows))


def products(rows, columns):
    """The dot product of each row with each column."""
    return [[sumprod(row, column) for column in columns] for row in rows]


class Matrix:
    """Rows of numbers, how they came about, and their gradient."""

    def __init__(self, rows, parents=(), back=None):
        self.rows, self.parents, self.back = rows, parents, back
        self.grad = None

    def __matmul__(self, other):  # (n, k) @ (k, m) is (n, m)
        rows = products(self.rows, transposed(other.rows))

        def back(grad):
            to_self = products(grad, other.rows)  # grad @ other.T
            # self.T @ grad
            to_other = products(transposed(self.rows), transposed(grad))
            return to_self, to_other

        return Matrix(rows, (self, other), back)

    def __add__(self, other):  # a matrix of one row is added to each row
        one = len(other.rows) == 1
        # one row is added to every row
        added = other.rows * len(self.rows) if one else other.rows
        rows = [list(map(add, *pair)) for pair in zip(self.rows, added)]

        def back(grad):
            if one:  # it served all rows, so it gets their sum
                return grad, [list(map(sum, transposed(grad)))]
            return grad, grad

        return Matrix(rows, (self, other), back)

    def __mul__(self, number):
        def times(rows):
            return [[value * number for value in row] for row in rows]

        return Matrix(times(self.rows), (self,), lambda grad: (times(grad),))

    def __getitem__(self, ids):  # one row for each id
        def back(grad):
            to_self = [[0.0] * len(row) for row in self.rows]
            for i, g in zip(ids, grad):
                to_self[i] = list(map(add, to_self[i], g))
            return (to_self,)

        return Matrix([self.rows[i] for i in ids], (self,), back)

    @property
    def T(self):
        def back(grad):
            return (transposed(grad),)

        return Matrix(transposed(self.rows), (self,), back)


def concat(parts):
    """Matrices side by side."""
    pieces = zip(*(part.rows for part in parts))
    rows = [list(chain(*row)) for row in pieces]
    width = len(parts[0].rows[0])

    def back(grad):  # cut into parts again
        starts = range(0, len(grad[0]), width)
        return [[g[i : i + width] for g in grad] for i in starts]

    return Matrix(rows, parts, back)


def relu(x):
    """max(0, x), number by number."""
    rows = [[max(0.0, value) for value in row] for row in x.rows]

    def back(grad):
        pairs = zip(rows, grad)
        return ([[g * (y > 0) for y, g in zip(*pair)] for pair in pairs],)

    return Matrix(rows, (x,), back)


def softmax(x):
    """Each row becomes positive numbers that add up to 1."""
    rows = []
    for row in x.rows:
        highest = max(row)  # so that no power is too large for a float
        powers = [math.exp(value - highest) for value in row]
        total = sum(powers)
        rows.append([power / total for power in powers])

    def back(grad):
        to_x = []
        for row, g in zip(rows, grad):
            # p * (g - mean), where the mean weighs each g by its p
            mean = sumprod(row, g)
            to_x.append([p * (value - mean) for p, value in zip(row, g)])
        return (to_x,)

    return Matrix(rows, (x,), back)


def layer_norm(x, gain, bias):
    """Each row gets mean 0 and variance 1; gain and bias are learnt."""
    normal, deviations = [], []
    for row in x.rows:
        mean = sum(row) / len(row)
        row = [value - mean for value in row]
        # a little more, so that it is never 0
        deviation = math.sqrt(sumprod(row, row) / len(row) + 1e-5)
        deviations.append(deviation)
        normal.append([value / deviation for value in row])
    gains, biases = gain.rows[0], bias.rows[0]
    rows = [list(map(add, map(mul, row, gains), biases)) for row in normal]

    def back(grad):
        to_x = []
        for row, deviation, g in zip(normal, deviations, grad):
            g = list(map(mul, g, gains))
            # mean and deviation depend on the row, too: so g loses its
            # mean, and the part of it that is along the row
            shift, stretch = sum(g) / len(g), sumprod(g, row) / len(g)
            to_x.append(
                [
                    (value - shift - stretch * n) / deviation
                    for value, n in zip(g, row)
                ]
            )
        to_gain = list(map(sumprod, transposed(grad), transposed(normal)))
        to_bias = list(map(sum, transposed(grad)))
        return to_x, [to_gain], [to_bias]

    return Matrix(rows, (x, gain, bias), back)


def visit(matrix, met):
    """Add to `met` all that a matrix was made from, then the matrix."""
    if matrix not in met:
        for parent in matrix.parents:
            visit(parent, met)
        met[matrix] = True


def backward(loss):
    """Add to the gradient of all that `loss`, one number, was made from."""
    met = {}  # a set that keeps its order
    visit(loss, met)
    loss.grad = [[1.0]]
    for matrix in reversed(met):  # from the loss to the weights
        if matrix.back is None:
            continue
        for parent, grad in zip(matrix.parents, matrix.back(matrix.grad)):
            if parent.grad is not None:  # used twice, or by a loss before
                pairs = zip(parent.grad, grad)
                grad = [list(map(add, *pair)) for pair in pairs]
            # never changed in place: the two parts of a sum share one
            parent.grad = grad


# 3 The model


def attention(query, key, value, mask=None):
    """3.2.1, equation 1: softmax(Q K^T / sqrt(d_k)) V."""
    d_k = len(query.rows[0])
    scores = query @ key.T * (1 / math.sqrt(d_k))
    if mask is not None:
        scores = scores + mask
    return softmax(scores) @ value


def multi_head(x, memory, heads, W_O, mask=None):
    """3.2.2: Concat(head_1, ..., head_h) W^O.

    The queries come from x, keys and values from the memory. In
    self-attention the memory is x.
    """
    outputs = [
        attention(x @ W_Q, memory @ W_K, memory @ W_V, mask)
        for W_Q, W_K, W_V in heads
    ]
    return concat(outputs) @ W_O


def feed_forward(x, W_1, b_1, W_2, b_2):
    """3.3, equation 2: max(0, x W_1 + b_1) W_2 + b_2."""
    return relu(x @ W_1 + b_1) @ W_2 + b_2


def causal_mask(length):
    """3.2.3: added to the scores; row i may look at columns 0 to i."""
    places = range(length)
    return Matrix(
        [[0.0 if j <= i else -math.inf for j in places] for i in places]
    )


def positions(length, d_model):
    """3.5: a row for each position, sines and cosines by turns."""

    def encoding(pos, i):
        angle = pos / 10_000 ** (2 * (i // 2) / d_model)
        return math.cos(angle) if i % 2 else math.sin(angle)

    return Matrix(
        [[encoding(pos, i) for i in range(d_model)] for pos in range(length)]
    )


class Transformer:
    """Encoder and decoder, figure 1. The paper: N=6, 512, 2048, h=8."""

    def __init__(self, vocab_size, N=1, d_model=16, d_ff=32, h=2):
        self.d_model, self.d_ff, self.h = d_model, d_ff, h
        self.weights = []  # all that is learnt
        self.table = self.matrix(vocab_size, d_model, d_model**-0.5)
        self.encoder = [self.layer(attentions=1) for _ in range(N)]
        self.decoder = [self.layer(attentions=2) for _ in range(N)]

    def matrix(self, n, m, deviation=None):
        """New weights: random numbers around 0, small in large layers."""
        deviation = deviation or math.sqrt(2 / (n + m))
        rows = [
            [random.gauss(0, deviation) for _ in range(m)] for _ in range(n)
        ]
        self.weights.append(Matrix(rows))
        return self.weights[-1]

    def row(self, length, value):
        self.weights.append(Matrix([[value] * length]))
        return self.weights[-1]

    def layer(self, attentions):
        """The weights of a layer, 3.1 to 3.3, by the paper's names."""
        d, d_k = self.d_model, self.d_model // self.h

        def heads():  # W_Q, W_K and W_V for each head
            return [
                [self.matrix(d, d_k) for _ in "QKV"] for _ in range(self.h)
            ]

        return {
            "heads": [heads() for _ in range(attentions)],
            "W_O": [self.matrix(d, d) for _ in range(attentions)],
            "W_1": self.matrix(d, self.d_ff),
            "b_1": self.row(self.d_ff, 0.0),
            "W_2": self.matrix(self.d_ff, d),
            "b_2": self.row(d, 0.0),
            "norms": [  # gain and bias; the last is for feed_forward
                (self.row(d, 1.0), self.row(d, 0.0))
                for _ in range(attentions + 1)
            ],
        }

    def attend(self, layer, i, x, memory, mask=None):
        """3.1: LayerNorm(x + Sublayer(x)) with the layer's attention i."""
        output = multi_head(
            x, memory, layer["heads"][i], layer["W_O"][i], mask
        )
        return layer_norm(x + output, *layer["norms"][i])

    def feed_forward(self, layer, x):
        """3.1 again, with the feed-forward network."""
        output = feed_forward(
            x, layer["W_1"], layer["b_1"], layer["W_2"], layer["b_2"]
        )
        return layer_norm(x + output, *layer["norms"][-1])

    def embed(self, ids):
        """3.4: rows of the table times sqrt(d_model), plus positions."""
        words = self.table[ids] * math.sqrt(self.d_model)
        return words + positions(len(ids), self.d_model)

    def encode(self, source):
        """3.1: the memory, a row for each word of the source."""
        x = self.embed(source)
        for layer in self.encoder:
            x = self.attend(layer, 0, x, x)
            x = self.feed_forward(layer, x)
        return x

    def decode(self, target, memory):
        """3.1: for each word of the target, scores for the next one."""
        x, mask = self.embed(target), causal_mask(len(target))
        for layer in self.decoder:
            x = self.attend(layer, 0, x, x, mask)
            x = self.attend(layer, 1, x, memory)
            x = self.feed_forward(layer, x)
        return x @ self.table.T  # 3.4: the same table once more


BOS, EOS = 0, 1  # the beginning and the end of a sentence


def translate(model, source, max_extra=50):
    """Greedy decoding: the likeliest word, again and again.

    A translation may be longer than its source by max_extra words, 6.1.
    """
    memory, target = model.encode(source), [BOS]
    while target[-1] != EOS and len(target) < len(source) + max_extra:
        scores = model.decode(target, memory).rows[-1]
        target.append(scores.index(max(scores)))
    return target[1:]


# 5 Training


def smoothed_loss(logits, labels, smoothing=0.1):
    """5.4: the mean cross-entropy, in nats, with smoothed labels."""
    n, vocab_size = len(logits.rows), len(logits.rows[0])
    wanted = [[smoothing / vocab_size] * vocab_size for _ in labels]
    for row, label in zip(wanted, labels):
        row[label] += 1 - smoothing
    predicted = softmax(logits).rows
    loss = 0.0
    for row, goal in zip(logits.rows, wanted):
        # log p = logit - log_total, and a goal's numbers add up to 1
        highest = max(row)
        total = sum(math.exp(value - highest) for value in row)
        log_total = highest + math.log(total)
        loss += log_total - sumprod(goal, row)

    def back(grad):  # predicted - wanted, and the mean's 1 / n
        each, pairs = grad[0][0] / n, zip(predicted, wanted)
        return ([[each * (p - q) for p, q in zip(*pair)] for pair in pairs],)

    return Matrix([[loss / n]], (logits,), back)


def learning_rate(step, d_model, warmup_steps):
    """5.3, equation 3."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


class Adam:
    """5.3: a step against the mean gradient, divided by its usual size.

    Both are running means, of the gradient and of its square, and forget:
    the new value counts 1 - beta.
    """

    def __init__(self, weights, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
        self.weights, self.steps = weights, 0
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.means, self.squares = (
            [[[0.0] * len(row) for row in w.rows] for w in weights]
            for _ in range(2)
        )

    def step(self, rate):
        self.steps += 1
        # the means begin at 0, so at first they are too small: divide them
        correction_1 = 1 - self.beta_1**self.steps
        correction_2 = 1 - self.beta_2**self.steps
        for w, means, squares in zip(self.weights, self.means, self.squares):
            if w.grad is None:  # no sentence used it
                continue
            for row, grad, m, v in zip(w.rows, w.grad, means, squares):
                for i, g in enumerate(grad):
                    m[i] += (1 - self.beta_1) * (g - m[i])
                    v[i] += (1 - self.beta_2) * (g * g - v[i])
                    size = math.sqrt(v[i] / correction_2) + self.epsilon
                    row[i] -= rate * m[i] / correction_1 / size
            # or the next batch would add to it
            w.grad = None


# Sentences to learn from

NOUNS = {  # in Spanish: one, many, and 1 if it is feminine
    "house": ("casa", "casas", 1),
    "table": ("mesa", "mesas", 1),
    "flower": ("flor", "flores", 1),
    "shirt": ("camisa", "camisas", 1),
    "tree": ("árbol", "árboles", 0),
    "book": ("libro", "libros", 0),
    "garden": ("jardín", "jardines", 0),
    "hat": ("sombrero", "sombreros", 0),
}
ADJECTIVES = {"red": "roj", "white": "blanc", "small": "pequeñ", "old": "viej"}


def sentences():
    """All pairs, such as "the old trees are red" and its translation."""
    pairs = []
    for noun, (*forms, feminine) in NOUNS.items():
        for many, article in enumerate((("el", "la"), ("los", "las"))):
            ending = "oa"[feminine] + "s" * many
            for adjective, stem in [("", ""), *ADJECTIVES.items()]:
                # without an adjective there are two spaces; see split()
                thing = f"the {adjective} {noun}{'s' * many}"
                cosa = f"{article[feminine]} {forms[many]} "
                cosa += stem + ending if stem else ""
                pleases = "gustan" if many else "gusta"
                pairs += [
                    (f"I like {thing}", f"me {pleases} {cosa}"),
                    (f"you like {thing}", f"te {pleases} {cosa}"),
                    (f"I see {thing}", f"veo {cosa}"),
                    (f"you see {thing}", f"ves {cosa}"),
                ]
                for other, other_stem in ADJECTIVES.items():
                    if other != adjective:
                        english = f"{thing} {'are' if many else 'is'} {other}"
                        spanish = f"{cosa} {'son' if many else 'es'} "
                        spanish += other_stem + ending
                        pairs.append((english, spanish))
    return [(english.split(), spanish.split()) for english, spanish in pairs]


def main(seed=0, steps=800, batch=8, warmup_steps=60, scale=0.5, test=100):
    random.seed(seed)
    pairs = sentences()
    random.shuffle(pairs)
    to_test, to_learn = pairs[:test], pairs[test:]
    words = sorted({word for pair in pairs for side in pair for word in side})
    vocabulary = ["<bos>", "<eos>", *words]
    ids = {word: i for i, word in enumerate(vocabulary)}

    def encoded(words):
        return [ids[word] for word in words] + [EOS]

    def translated(words):
        target = translate(model, encoded(words), max_extra=3)
        return [vocabulary[i] for i in target if i != EOS]

    model = Transformer(len(vocabulary))
    adam = Adam(model.weights)
    count = sum(len(w.rows) * len(w.rows[0]) for w in model.weights)
    print(f"{len(to_learn)} pairs to learn from, {count:,} weights")
    example = "I like the trees".split()
    for step in range(1, steps + 1):
        mean = 0.0
        for source, target in random.sample(to_learn, batch):
            memory = model.encode(encoded(source))
            labels = encoded(target)
            # the shift: what the decoder reads is one word behind
            logits = model.decode([BOS, *labels[:-1]], memory)
            loss = smoothed_loss(logits, labels) * (1 / batch)
            backward(loss)  # the gradients of a batch add up
            mean += loss.rows[0][0]
        rate = learning_rate(step, model.d_model, warmup_steps)
        adam.step(scale * rate)  # half of it, as so small a model likes
        if step in (1, 10, 25, 50) or step % 100 == 0:
            said = " ".join(translated(example))
            print(f"step {step:3}  loss {mean:.2f}  {said}", flush=True)
    right = 0
    for source, target in to_test:
        right += translated(source) == target
    print(f"{right} of {len(to_test)} new sentences are right, among them")
    for source, _ in to_test[:5]:
        print(f"  {' '.join(source)}: {' '.join(translated(source))}")
    return right


def numbers():
    """Print, in JSON, what a small model computes, to check a port by.

    python -c "import transformer; transformer.numbers()"
    """
    random.seed(0)
    model = Transformer(vocab_size=6, d_model=4, d_ff=6, N=2)
    for w in model.weights:
        if len(w.rows) == 1:  # so that no gain is 1, and no bias 0
            w.rows = [[x + random.gauss(0, 0.3) for x in w.rows[0]]]

    names = "table", "encoder", "decoder"

    def of_weights(kind):  # their "rows" or "grad", nested as in the model
        parts = {name: getattr(model, name) for name in names}
        text = json.dumps(parts, default=lambda w: getattr(w, kind))
        return json.loads(text)

    source, labels = [4, 2, 5, 2, EOS], [3, 2, 2, EOS]  # one token twice
    found = {"source": source, "labels": labels, "rate": 0.01, "steps": []}
    found["weights"] = of_weights("rows")
    adam = Adam(model.weights)
    for _ in range(2):
        memory = model.encode(source)
        logits = model.decode([BOS, *labels[:-1]], memory)
        loss = smoothed_loss(logits, labels)
        backward(loss)
        step = {
            "memory": memory.rows,
            "logits": logits.rows,
            "loss": loss.rows[0][0],
            "gradients": of_weights("grad"),
        }
        adam.step(found["rate"])
        found["steps"].append(step | {"weights after": of_weights("rows")})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
