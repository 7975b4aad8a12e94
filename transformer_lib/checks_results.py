# Collected from book/back/checks_results.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: beams, evaluation, translator, cli."""

import torch

from transformer_lib.exercises import exercise

__all__ = [
    "beams_extend",
    "beams_rank",
    "cli_options",
    "evaluation_brevity",
    "evaluation_per_word",
    "evaluation_precision",
    "exercises_softmax",
    "first_translation_align",
    "first_translation_exact",
    "translator_page",
]


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
        "with alpha 0.6 the longer one wins: -2 is divided by "
        "2**0.6; "
        "do you divide by the penalty, and is the highest score "
        "first?"
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
        "the new totals are old total plus gain, the best over all "
        "rows "
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
        f"5 words for 10 give e^(1 - 10/5) = {right:.3f}, not "
        f"{got:.3f}"
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
    """Translate a page, keep its lines, ask once for them all.

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


@exercise("exercises.softmax")
def exercises_softmax(answer):
    """A check that tells a softmax over the last axis from others.

    Chapter: checks-exercises
    """
    softmax = torch.softmax
    for passes, fault, candidate in (
        (
            True,
            "refuses torch's own softmax",
            lambda x: softmax(x, -1),
        ),
        (False, "lets exp(x) pass: what is a row's sum?", torch.exp),
        (
            False,
            "lets x / x.sum() pass: can a weight be negative?",
            lambda x: x / x.sum(-1, True),
        ),
        (
            False,
            "lets a softmax over the first axis pass: try it on a "
            "matrix that is not square",
            lambda x: softmax(x, 0),
        ),
    ):
        try:
            answer(candidate)
            passed = True
        except AssertionError:
            passed = False
        assert passed == passes, f"your check {fault}"
