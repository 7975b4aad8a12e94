"""Typical wrong answers to the exercise on the command line."""

from transformer_book.exercises import check


def test_underscores(capsys):
    def answer(fields):
        return [
            w for k, v in fields.items() for w in (f"--{k}", str(v))
        ]

    assert not check("cli.options", answer)
    assert "hyphens" in capsys.readouterr().out


def test_flags_with_values(capsys):
    def answer(fields):
        words = []
        for name, value in fields.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        return words

    assert not check("cli.options", answer)
    assert "a flag has no value" in capsys.readouterr().out.lower()


def test_flags_that_are_off_left_out(capsys):
    def answer(fields):
        words = []
        for name, value in fields.items():
            option = "--" + name.replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not False:
                words += [option, str(value)]
        return words

    assert not check("cli.options", answer)
    assert "--no-" in capsys.readouterr().out
