# Collected from book/back/checks_training.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks of the exercises on sections 5 and 6 of the paper."""

from functools import partial

import torch

from transformer_lib.batching import collate
from transformer_lib.exercises import exercise
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.training import History

__all__ = [
    "batching_padding",
    "batching_share",
    "beams_extend",
    "beams_rank",
    "checkpoints_fading",
    "checkpoints_size",
    "cli_options",
    "corpora_overlap",
    "corpora_split",
    "decoding_cache_size",
    "decoding_greedy",
    "decoding_nucleus",
    "evaluation_brevity",
    "evaluation_per_word",
    "evaluation_precision",
    "first_translation_align",
    "first_translation_exact",
    "grammar_article",
    "grammar_combinations",
    "loss_epoch",
    "loss_floor",
    "loss_smoothed",
    "queues_fits",
    "recording_late",
    "runs_first_step",
    "schedule_adam",
    "schedule_cosine",
    "schedule_peak",
    "tokenization_bytes",
    "tokenization_learn",
    "training_accumulate",
    "training_patience",
    "training_shift",
    "translator_page",
]


@exercise("grammar.article")
def grammar_article(answer):
    """The article of a noun, with "el agua" right.

    Chapter: checks-grammar
    """
    for word in (
        "el coche m",
        "la casa f",
        "el agua f",
        "el hacha f",
    ):
        article, noun, gender = word.split()
        got = answer(noun, gender, False)
        assert got == article, f"one says {article} {noun}, not {got}"
    for noun, gender, article in (
        ("agua", "f", "las"),
        ("coche", "m", "los"),
    ):
        got = answer(noun, gender, True)
        assert got == article, f"several: {article}, not {got}"


@exercise("grammar.combinations")
def grammar_combinations(answer):
    """How many combinations there are, and how many are kept.

    Chapter: checks-grammar
    """
    every, kept = answer
    assert every == 288, (
        f"{every}: 16 nouns meet 8 verbs ('like' is one) and 10 "
        "adjectives"
    )
    assert kept == 36, f"{kept}: two nouns of 16 for each partner"


@exercise("corpora.overlap")
def corpora_overlap(answer):
    """The share of a test whose source sentences training has.

    Chapter: checks-corpora
    """
    train = [("Go.", "Ve."), ("Run!", "Corre"), ("Go.", "Vete.")]
    test = [
        ("Go.", "Vaya."),
        ("Go.", "Ve."),
        ("Hi.", "Hola."),
        ("No", "No"),
    ]
    got = answer(train, test)
    assert got != 1 / 4, (
        "compare source sentences, not whole pairs: 'Go.' is known, "
        "whatever its translation"
    )
    assert got == 2 / 4, f"2 of 4 test pairs are known, you say {got}"
    assert answer(train, test[2:]) == 0, "'Hi.' and 'No' are new"


@exercise("corpora.split")
def corpora_split(answer):
    """Pairs split in two that share no source sentence.

    Chapter: checks-corpora
    """
    pairs = [
        (f"sentence {n // 3}", f"frase {n}") for n in range(3000)
    ]
    train, test = map(set, answer(pairs))
    assert train | test == set(pairs), "some pairs were lost"
    both = {a for a, _ in train} & {a for a, _ in test}
    assert not both, f"{len(both)} sentences are on both sides"
    share = len(test) / len(pairs)
    assert 0.05 < share < 0.15, f"a tenth was asked, got {share:.2f}"
    again = [set(part) for part in answer(pairs[::-1])]
    assert again == [train, test], (
        "another order of the pairs gives another split: decide by the "
        "sentence alone, by its hash for example (hashlib's: Python's "
        "own hash() of a text changes from run to run)"
    )


@exercise("tokenization.bytes")
def tokenization_bytes(answer):
    """How many tokens a text has before any merge.

    Chapter: checks-tokenization
    """
    for text in ("tree", "árbol", "日本", "", "👍"):
        want, got = len(text.encode()), answer(text)
        assert got != len(text) or got == want, (
            f"{text!r} has {len(text)} characters but {want} bytes"
        )
        assert got == want, f"{text!r}: {want} bytes, you say {got}"


@exercise("tokenization.learn")
def tokenization_learn(answer):
    """The first merges that byte-pair encoding learns.

    Chapter: checks-tokenization
    """
    words = {("a", "b", "c"): 9, ("b", "c"): 5, ("a", "b"): 3}
    got = [tuple(pair) for pair in answer(dict(words), 2)]
    assert len(got) == 2, f"2 merges were asked, got {len(got)}"
    assert got[0] != ("a", "b"), (
        "'a b' stands in 12 words, 'b c' in 14: weigh each word by how "
        "often it occurs"
    )
    assert got[0] == ("b", "c"), f"'b c' is commonest, not {got[0]}"
    assert got[1] == ("a", "bc"), (
        f"after 'b c' is merged the commonest pair is 'a bc', 9 times; "
        f"you say {got[1]}: count anew after each merge"
    )


@exercise("batching.padding")
def batching_padding(answer):
    """The share of padding in one batch of these lengths.

    Chapter: checks-batching
    """
    for lengths, want in (([4, 4], 0), ([1, 4], 3 / 8), ([5], 0)):
        got = answer(lengths)
        assert abs(got - want) < 1e-9, (
            f"lengths {lengths}: the batch has {max(lengths)} columns "
            f"and {len(lengths)} rows, so {want} of it is padding, not "
            f"{got}"
        )


@exercise("batching.share")
def batching_share(answer):
    """Batches dealt out to workers, as many to each.

    Chapter: checks-batching
    """
    for n, size in ((6, 2), (7, 3), (2, 4)):
        hands = [
            list(answer(list(range(n)), r, size)) for r in range(size)
        ]
        counts = {len(hand) for hand in hands}
        assert len(counts) == 1, (
            f"{n} batches, {size} workers: some get {min(counts)} and "
            f"some {max(counts)}, and those with more wait for ever"
        )
        lost = set(range(n)) - {b for hand in hands for b in hand}
        assert not lost, f"nobody gets the batches {sorted(lost)}"
        most = -(-n // size)
        assert len(hands[0]) == most, (
            f"{most} batches each are enough"
        )


@exercise("loss.floor")
def loss_floor(answer):
    """The lowest smoothed loss of a token, in nats.

    Chapter: checks-loss
    """
    none = answer(100, 0.0)
    assert abs(none) < 1e-9, (
        f"without smoothing it is 0, not {none:.3g}"
    )
    for size, share in ((8, 0.4), (8000, 0.1), (37_000, 0.2)):
        every = share / size
        q = torch.full((size,), every, dtype=torch.float64)
        q[0] += 1 - share
        wanted, got = -(q * q.log()).sum().item(), answer(size, share)
        assert abs(got - wanted) < 1e-6 * wanted, (
            f"for V={size} and a share of {share} you give {got:.4f}; the "
            f"target's entropy is {wanted:.4f}. The right piece has "
            "1 - share + share / V"
        )


@exercise("loss.smoothed")
def loss_smoothed(answer):
    """The loss per token with uniform smoothing, without padding.

    Chapter: checks-loss
    """
    logits = 3 * torch.randn(2, 5, 8)
    labels = torch.tensor([[4, 6, 5, 4, 3], [7, 5, 3, 0, 0]])
    for share in (0.0, 0.1, 0.5):
        got = float(answer(logits, labels, share))
        wanted = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=0,
            label_smoothing=share,
        ).item()
        assert abs(got - wanted) < 1e-4 * wanted, (
            f"with a share of {share} it is {wanted:.4f}, not {got:.4f}. Is "
            "padding left out, of the sum and of the count? Does every "
            "piece get share / V, the right one too?"
        )


@exercise("loss.epoch")
def loss_epoch(answer):
    """The perplexity of an epoch from its batches' mean losses.

    Chapter: checks-loss
    """
    same = answer([2.0, 2.0], [10, 90])
    assert abs(same - 7.389056) < 1e-4, (
        f"two batches at 2 nats are at e^2 = 7.389 together, not {same:.3f}"
    )
    got = answer([1.0, 3.0], [300, 100])
    assert abs(got - 4.481689) < 1e-4, (
        f"300 tokens at 1 nat and 100 at 3 make 1.5 nats a token, a "
        f"perplexity of 4.482; you give {got:.3f}. Weigh by tokens, and "
        "take the exponential last"
    )


@exercise("schedule.peak")
def schedule_peak(answer):
    """The step and the rate at the top of equation 3.

    Chapter: checks-schedule
    """
    for width, warmup in ((512, 4000), (128, 400), (1024, 7)):
        step, rate = answer(width, warmup)
        assert step == warmup, (
            f"the two terms meet at step {warmup}, not {step}"
        )
        wanted = (width * warmup) ** -0.5
        assert abs(rate - wanted) < 1e-6 * wanted, (
            f"for d_model {width} and a warm-up of {warmup} the top is "
            f"{wanted:.3g}, not {rate:.3g}: put the step into either term, "
            "and do not forget the width"
        )


@exercise("schedule.cosine")
def schedule_cosine(answer):
    """Equation 3's ramp, then half a cosine wave down to 0.

    Chapter: checks-schedule
    """
    top = (512 * 100) ** -0.5
    for step, share, where in (
        (1, 0.01, "at the first step"),
        (50, 0.5, "halfway up"),
        (100, 1.0, "at the end of the warm-up"),
        (600, 0.5, "halfway down"),
        (1100, 0.0, "at the last step"),
    ):
        got = answer(step, 512, 100, 1100) / top
        assert abs(got - share) < 1e-6, (
            f"{where}, step {step} of 1100 with a warm-up of 100, the rate "
            f"is {share} of the top; yours is {got:.3f} of it"
        )


@exercise("schedule.adam")
def schedule_adam(answer):
    """One step of Adam: the new weight and both running means.

    Chapter: checks-schedule
    """
    weight = torch.ones(4, dtype=torch.float64)
    ours = weight.clone().requires_grad_()
    theirs = torch.optim.Adam([ours], 0.1, (0.9, 0.98), 1e-9)
    m = v = torch.zeros_like(weight)
    for t in (1, 2, 3):
        ours.grad = torch.randn(4, dtype=torch.float64)
        theirs.step()
        weight, m, v = answer(weight, ours.grad, m, v, t, 0.1)
        hint = "are m and v corrected for t, and which do you return?"
        assert torch.allclose(weight, ours.detach(), atol=1e-7), (
            f"after step {t} the weights are {ours.tolist()}, yours "
            f"{weight.tolist()}: {hint}"
        )


@exercise("checkpoints.size")
def checkpoints_size(answer):
    """Bytes of a model's tensors, and of a checkpoint's.

    Chapter: checks-checkpoints
    """
    size, of_checkpoint = answer
    assert size(1000) == 4000, (
        "single precision takes 4 bytes a number"
    )
    assert size(1000, half=True) == 2000, (
        "half precision takes 2 bytes"
    )
    got = of_checkpoint(1000)
    assert got != 4000, "Adam's running means are in a checkpoint too"
    assert got != 8000, "Adam keeps two running means for each weight"
    assert got == 12_000, (
        f"1,000 parameters take 12,000 bytes, not {got}"
    )


@exercise("checkpoints.fading")
def checkpoints_fading(answer):
    """An exponentially fading mean of state dicts, oldest first.

    Chapter: checks-checkpoints
    """
    states = [{"w": torch.tensor([x, 0.0])} for x in (0.0, 4.0, 8.0)]
    got = answer(states, 0.75)["w"][0].item()
    assert states[0]["w"][0] == 0, "the first state has been changed"
    assert abs(got - 6.75) > 1e-6, "`keep` belongs to the mean so far"
    assert abs(got - 2.75) < 1e-6, (
        f"0 becomes 0.75 * 0 + 0.25 * 4 = 1, then 2.75; you give {got}"
    )
    alone = answer(states[:1], 0.75)["w"]
    assert torch.equal(alone, states[0]["w"]), (
        "of one state: that state"
    )


@exercise("training.shift")
def training_shift(answer):
    """The decoder's input and its labels, shifted by one.

    Chapter: checks-training-loop
    """
    inputs, labels = map(list, answer([7, 8, 9]))
    assert len(inputs) == len(labels) == 4, (
        f"three ids make four places, yours {len(inputs)} and {len(labels)}"
    )
    assert inputs != labels, (
        "the decoder would read what it is asked for"
    )
    assert inputs == [2, 7, 8, 9], (
        f"it reads {inputs}: begin goes in front"
    )
    assert labels == [7, 8, 9, 3], (
        f"it is asked for {labels}: end goes last"
    )


@exercise("training.accumulate")
def training_accumulate(answer):
    """Gradients of the loss per token over several batches.

    Chapter: checks-training-loop
    """
    model = Transformer(TransformerConfig.tiny(12, N=1, dropout=0.0))
    pairs = [([5, 6, 3], [7, 8, 9, 8, 7, 3]), ([5, 3], [6, 3])]
    whole = collate(pairs)
    logits = model(whole.source_ids, whole.target_ids)
    (smoothed_loss(logits, whole.labels) / 8).backward()
    wanted = [w.grad.clone() for w in model.parameters()]
    for time in ("", " when old gradients are there"):
        answer(model, [collate(pairs[:1]), collate(pairs[1:])])
        got = [w.grad for w in model.parameters()]
        ratio = got[0].norm() / wanted[0].norm()
        close = all(
            map(partial(torch.allclose, atol=1e-5), got, wanted)
        )
        assert close, (
            f"the gradients differ{time}; yours are {ratio:.2f} times as "
            "long. Divide each sum by the tokens of all batches"
        )


@exercise("training.patience")
def training_patience(answer):
    """The best step when training stops early.

    Chapter: checks-training-loop
    """
    steps, losses = [10, 20, 30, 40, 50], [3.0, 2.0, 2.5, 2.2, 1.0]
    got = answer(steps, losses, 2)
    assert got == 20, (
        f"after two measurements without a new lowest it stops, and never "
        f"sees step 50; the best until then is step 20, not {got}"
    )
    assert answer(steps, losses, 3) == 50, (
        "with patience 3 it goes on to 50"
    )
    assert answer([1, 2], [2.0, 3.0], 5) == 1, (
        "patience may never run out"
    )


@exercise("decoding.cache_size")
def decoding_cache_size(answer):
    """Count the numbers in a full cache of keys and values.

    Chapter: checks-decoding
    """
    config = TransformerConfig(100, N=3, d_model=16, d_ff=32, h=2)
    got, right = answer(config, 5, 7, 11), 2 * 3 * 16 * 5 * (7 + 11)
    assert got != right // 2, "keys and values: that is two of each"
    assert got != right // 3, "every one of the N layers has its own"
    assert got == right, (
        f"3 layers of width 16, 5 sentences, 7 + 11 positions: {right} "
        f"numbers, yours is {got}"
    )


@exercise("decoding.greedy")
def decoding_greedy(answer):
    """Take the likeliest piece until eos (3) or the limit.

    Chapter: checks-decoding
    """
    path = [5, 4, 5, 3, 4, 4, 4, 4]

    def model(ids):
        logits = torch.zeros(6)
        logits[path[len(ids)]] = 2.0
        return logits.log_softmax(-1)

    got = answer(model, 8)
    assert 3 in got, (
        "eos (3) was the likeliest, and belongs to the output"
    )
    assert got == path[:4], (
        f"expected {path[:4]}: stop at eos; got {got}"
    )
    got = answer(model, 2)
    assert got == [5, 4], f"the limit is 2 ids, got {got}"


@exercise("decoding.nucleus")
def decoding_nucleus(answer):
    """Keep the fewest pieces that hold a share p, scaled to sum 1.

    Chapter: checks-decoding
    """
    chances = torch.tensor([0.1, 0.5, 0.05, 0.25, 0.1])
    got = answer(chances.clone(), 0.7)
    kept = (got > 0).tolist()
    assert kept[1], (
        "the likeliest piece always belongs to the nucleus"
    )
    assert kept == [False, True, False, True, False], (
        "0.5 is less than 0.7, and 0.5 + 0.25 is enough: two pieces"
    )
    assert abs(got.sum() - 1) < 1e-6, "what is kept must sum to 1"
    assert abs(got[1] - 2 / 3) < 1e-6, "scale all that is kept alike"
    assert (answer(chances, 0.01) > 0).sum() == 1, (
        "never keep nothing"
    )


@exercise("beams.rank")
def beams_rank(answer):
    """Sort hypotheses by log-probability over length penalty.

    Chapter: checks-beams
    """
    two = [([5, 6, 7, 8, 9, 5, 3], -2.0), ([5, 3], -1.8)]
    got = [pair[1] for pair in answer(list(two), 0.0)]
    assert got == [-1.8, -2.0], (
        "with alpha 0 the log-probability decides"
    )
    got = [pair[1] for pair in answer(two[::-1], 0.6)]
    assert got == [-2.0, -1.8], (
        "with alpha 0.6 the longer one wins: -2 is divided by 2**0.6; "
        "do you divide by the penalty, and is the highest score first?"
    )
    near = [([5, 3], -1.1), ([3], -1.0)]
    got = [pair[1] for pair in answer(near, 0.6)]
    assert got == [-1.0, -1.1], (
        "lp is ((5 + length) / 6)^alpha, eos counts"
    )


@exercise("beams.extend")
def beams_extend(answer):
    """Choose the best candidates of all open hypotheses together.

    Chapter: checks-beams
    """
    totals = torch.tensor([-1.0, -2.0, -9.0])
    gains = torch.rand(3, 5).log_softmax(-1) * 3
    rows, pieces, best = map(torch.as_tensor, answer(totals, gains))
    all_of_them = (totals[:, None] + gains).flatten()
    expected = all_of_them.topk(3).values
    assert best.shape == (3,), (
        f"three survive, got {tuple(best.shape)}"
    )
    assert torch.allclose(best, expected), (
        "the new totals are old total plus gain, the best over all rows "
        "together and not one a row"
    )
    places = rows * 5 + pieces
    assert torch.allclose(all_of_them[places], best), (
        "rows and pieces differ"
    )


@exercise("evaluation.brevity")
def evaluation_brevity(answer):
    """BLEU's penalty for hypotheses shorter than their reference.

    Chapter: checks-evaluation
    """
    assert answer(10, 10) == 1, "as long as the reference: no penalty"
    assert answer(15, 10) == 1, (
        "longer is not punished, 1 is the most"
    )
    got, right = answer(5, 10), torch.tensor(-1.0).exp().item()
    assert abs(got - right) < 1e-6, (
        f"5 words for 10 give e^(1 - 10/5) = {right:.3f}, not {got:.3f}"
    )
    assert answer(0, 10) == 0, "an empty hypothesis deserves 0"


@exercise("evaluation.precision")
def evaluation_precision(answer):
    """The share of n-grams that one of several references allows.

    Chapter: checks-evaluation
    """
    the, two = "the the the the".split(), ["the cat", "the the dog"]
    two = [text.split() for text in two]
    got = answer(the, two, 1)
    assert got != 1, (
        "'the' may count twice, as often as one reference has it"
    )
    assert got != 0.75, (
        "do not add up the references, take the largest"
    )
    assert got == 0.5, f"two of four words are allowed, you say {got}"
    got = answer("a cat sat".split(), ["a cat".split()], 2)
    assert got == 0.5, f"'a cat' matches, 'cat sat' does not: {got}"
    assert answer(["a"], [["a"]], 2) == 0, "no pairs: 0, and no error"


@exercise("evaluation.per_word")
def evaluation_per_word(answer):
    """Turn a perplexity per piece into one per word.

    Chapter: checks-evaluation
    """
    got = answer(3.0, 100, 50)
    assert got != 6.0, "perplexities do not share out, losses do"
    assert abs(got - 9.0) < 1e-6, (
        "two pieces a word, each one of 3: a word is one of 9; "
        f"yours is one of {got:.2f}"
    )
    assert abs(answer(7.5, 60, 60) - 7.5) < 1e-6, (
        "one piece a word: equal"
    )


@exercise("translator.page")
def translator_page(answer):
    """Translate a page, keep its lines, ask once for all sentences.

    Chapter: checks-translator
    """
    asked = []

    def translate(sentences):
        asked.append(list(sentences))
        return [sentence.upper() for sentence in sentences]

    page = "One two. Three?\n\nFour five! Six. Seven\nEight"
    got = answer(translate, page)
    assert len(asked) == 1, f"translate was called {len(asked)} times"
    known = "One two.|Three?|Four five!|Six.|Seven|Eight".split("|")
    said = [sentence for sentence in asked[0] if sentence.strip()]
    assert said == known, (
        f"the sentences are {known}, you sent {said}"
    )
    assert got.count("\n") == 3, (
        "the page has four lines, one of them blank"
    )
    assert got == page.upper(), (
        f"each translation in its place: {got!r}"
    )


@exercise("first_translation.exact")
def first_translation_exact(answer):
    """The share of sentences exactly right.

    Chapter: checks-first-translation
    """
    guesses = ["Veo un árbol ", "veo un árbol", "Sí", "No"]
    got = answer(guesses, ["Veo un árbol"] * 2 + ["Sí", "Nunca"])
    assert got != 0.25, "strip the spaces at the ends of both"
    assert got != 0.75, "'veo' is not 'Veo': capitals count"
    assert got == 0.5, f"two of four are right, you say {got}"
    try:
        answer(["Sí"], ["Sí", "No"])
    except Exception:
        return
    raise AssertionError("two lists of different length are an error")


@exercise("first_translation.align")
def first_translation_align(answer):
    """Each predicted piece with the source piece it looks at most.

    Chapter: checks-first-translation
    """
    heads = [[[9.0, 0, 1], [0, 2, 8]], [[0, 6, 4], [0, 9, 1]]]
    weights = torch.tensor(heads) / 10  # (2 heads, 2 rows, 3 columns)
    got = answer(weights, ["el", "rojo"], ["the", "red", "<eos>"])
    assert ("rojo", "<eos>") not in got, "average the heads first"
    right = [("el", "the"), ("rojo", "red")]
    assert got == right, f"it should be {right}, you give {got}"
    got = answer(
        weights.flip(2), ["el", "<eos>"], ["<eos>", "a", "b"]
    )
    assert got == [("el", "b")], "leave out <eos>, on either side"


@exercise("runs.first_step")
def runs_first_step(answer):
    """The first step at which a figure is at or below a bound.

    Chapter: checks-runs
    """
    lines = [{"step": 1, "nll": 5.0}, {"step": 2}]
    lines += [{"step": 3, "nll": 2.0}, {"step": 4, "nll": 3.0}]
    history = History(lines)
    got = answer(history, "nll", 2.0)
    assert got == 3, f"the bound itself counts: step 3, not {got}"
    got = answer(history, "nll", 4.0)
    assert got == 3, f"the first step at or below 4 is 3, not {got}"
    got = answer(history, "nll", 1.0)
    assert got is None, f"it never came down to 1: None, not {got}"


@exercise("recording.late")
def recording_late(answer):
    """The checkpoints of the last tenth, a few at most.

    Chapter: checks-recording
    """
    got = answer([50, 100, 150, 200, 250], 5)
    assert got == [250], (
        f"of 250 steps the last tenth begins after 225, you keep {got}"
    )
    steps = list(range(100, 1001, 10))
    got = answer(steps, 5)
    assert got == steps[-5:], f"five at most, the last: not {got}"
    assert answer([7], 5) == [7], "one is always there"


@exercise("queues.fits")
def queues_fits(answer):
    """How many jobs end within a budget, several at once.

    Chapter: checks-queues
    """
    got = answer([3, 3, 3], 6, 1)
    assert got == 2, f"one after the other, two fit into 6, not {got}"
    got = answer([5, 1, 1, 1], 5, 2)
    assert got == 4, (
        "while the long one runs, the short ones take turns in the "
        f"other place: all 4 end, not {got}"
    )
    got = answer([4, 9, 4], 8, 2)
    assert got == 2, f"the 9 does not end in time, two do, not {got}"


@exercise("cli.options")
def cli_options(answer):
    """The option of a field, as it is typed.

    Chapter: checks-cli
    """
    asked = {"tokens_per_batch": 4096, "half": True, "bias": False}
    got = answer(asked)
    assert "--tokens_per_batch" not in got, "options have hyphens"
    assert "True" not in got, "a flag has no value: --half"
    assert "--no-bias" in got, "a flag that is off is --no-..."
    assert got == [
        "--tokens-per-batch",
        "4096",
        "--half",
        "--no-bias",
    ], f"words as a shell would pass them, not {got}"
