"""The exercises' checks: `check("masks.masks", my_function)`.

An answer is tried by the probes of the conformance suite that try the
same function of anybody's: there is one set of checks.
"""

from typing import Any

from transformer_conformance import PROBES, Adapter, run

# An exercise's name, "chapter.what", and the adapter's function.
EXERCISES = {
    "embeddings.tied": "embeddings",
    "positions.sinusoids": "positions",
    "attention.attention": "attention",
    "attention.multi_head": "multi_head",
    "masks.masks": "masks",
    "layers.encoder_layer": "encoder_layer",
    "layers.decoder_layer": "decoder_layer",
    "loss.smoothed": "loss",
    "schedule.learning_rate": "learning_rate",
    "training.update": "update",
    "decoding.greedy": "greedy",
    "beams.search": "beam",
}
# What an exercise does not ask for.
_NOT_ASKED = {"empty_row", "greedy_in_evaluation"}


def check(name: str, answer: Any) -> bool:
    """Check an answer; print what is right or wrong with it.

    The random numbers that a check draws are the same each time, and
    the reader's own go on as if nothing had been drawn.

    Args:
        name: as in "attention.attention".
        answer: the function or class that the exercise asks for.

    Returns:
        True if the answer is what the paper says; a deviation that
        works is no answer.

    Raises:
        ValueError: if there is no such check; the names are listed.
    """
    if name not in EXERCISES:
        names = ", ".join(sorted(EXERCISES))
        raise ValueError(f"no check named {name!r}; there are {names}")
    if not callable(answer):
        kind = type(answer).__name__
        print(f"{name}: not yet. {kind} is no function or class")
        return False
    function = EXERCISES[name]
    functions = {function: answer}
    if name == "decoding.greedy":
        functions |= _of_the_library()
    asked = [
        probe
        for probe in PROBES
        if function in "|".join(probe.needs).split("|")
        and probe.name not in _NOT_ASKED
    ]
    shown = False
    for result in run(Adapter(functions), asked):
        shown |= result.verdict.kind == "paper"
        if result.verdict.kind in ("fault", "deviation"):
            words = result.verdict.words
            print(f"{name}: not yet.\n{words[:1].upper()}{words[1:]}")
            return False
    print(f"{name}: {'right' if shown else 'not yet. It is to be written'}.")
    return shown


def _of_the_library() -> dict[str, Any]:
    """The model that an answer decodes with."""
    from transformer_conformance import ours

    return {"build": ours.build, "logits": ours.logits}
