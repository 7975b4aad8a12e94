"""Typical wrong answers to the exercises of the first translation."""

from transformer_book.exercises import check


def test_forgetting_the_spaces(capsys):
    def answer(guesses, references):
        pairs = zip(guesses, references, strict=True)
        return sum(a == b for a, b in pairs) / len(references)

    assert not check("first_translation.exact", answer)
    assert "strip the spaces" in capsys.readouterr().out.lower()


def test_letting_lists_of_any_length_pass(capsys):
    def answer(guesses, references):
        pairs = zip(guesses, references, strict=False)
        right = sum(a.strip() == b.strip() for a, b in pairs)
        return right / len(references)

    assert not check("first_translation.exact", answer)
    assert "different length" in capsys.readouterr().out


def test_looking_at_one_head_alone(capsys):
    def answer(weights, predicted, source):
        best = weights[0].argmax(-1)
        return [
            (p, source[i])
            for p, i in zip(predicted, best, strict=False)
        ]

    assert not check("first_translation.align", answer)
    assert "average the heads" in capsys.readouterr().out.lower()


def test_keeping_the_end(capsys):
    def answer(weights, predicted, source):
        best = weights.mean(0).argmax(-1)
        return [
            (p, source[i])
            for p, i in zip(predicted, best, strict=False)
        ]

    assert not check("first_translation.align", answer)
    assert "<eos>" in capsys.readouterr().out
