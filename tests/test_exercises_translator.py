"""Typical wrong answers to the exercise on the translator."""

from transformer_book.exercises import check


def test_a_call_for_every_line(capsys):
    def answer(translate, page):
        return "\n".join(
            translate([line])[0] for line in page.split("\n")
        )

    assert not check("translator.page", answer)
    assert "was called 4 times" in capsys.readouterr().out


def test_lines_instead_of_sentences(capsys):
    def answer(translate, page):
        return "\n".join(translate(page.split("\n")))

    assert not check("translator.page", answer)
    assert "The sentences are" in capsys.readouterr().out


def test_blank_lines_lost(capsys):
    import re

    def answer(translate, page):
        lines = [line for line in page.split("\n") if line]
        parts = [re.split(r"(?<=[.?!]) ", line) for line in lines]
        said = iter(
            translate([one for part in parts for one in part])
        )
        return "\n".join(
            " ".join(next(said) for _ in part) for part in parts
        )

    assert not check("translator.page", answer)
    assert "four lines" in capsys.readouterr().out
