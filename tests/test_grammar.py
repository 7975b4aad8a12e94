"""The grammar of little Spanish, and the files that it has written."""

import grammar
import pytest


@pytest.fixture(scope="module")
def splits():
    return grammar.draw_splits()


def plain(text):
    return text.lower().strip("¿?").split()


def test_the_shipped_files_are_what_the_grammar_writes():
    for name, text in grammar.files().items():
        assert (grammar.DATA / name).read_bytes() == text.encode(), name


def test_every_word_of_the_test_is_in_training(splits):
    def words(part):
        return {w for pair in part.items() for s in pair for w in plain(s)}

    assert words(splits["test"]) <= words(splits["train"])


def combinations(text):
    """The noun of a sentence with each verb and adjective in it."""

    def said(*forms):
        spaced = f" {' '.join(plain(text))} "
        return any(f" {form} " in spaced for form in forms)

    [noun] = [n for n in grammar.NOUNS if said(n, n + "s")]
    verbs = [v for v, (third, *_) in grammar.VERBS.items() if said(v, third)]
    partners = [*verbs, *filter(said, grammar.ADJECTIVES)]
    return [(noun, partner) for partner in partners]


def test_kept_combinations_are_in_the_test_alone(splits):
    for name, part in splits.items():
        for text in part:
            kept = any(grammar.held_out(*both) for both in combinations(text))
            assert kept == (name == "test"), text
