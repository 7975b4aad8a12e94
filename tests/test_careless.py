"""What people get wrong at the command line ends in one clear line."""

from pathlib import Path

import pytest
from translators import write_corpus

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import load_model, save_config, save_model
from transformer_lib.cli import main
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

SMALL = "--N 1 --d-model 8 --d-ff 8 --h 2 --vocab-size 300 --limit 40 "
SMALL += "--max-steps 1 --device cpu --precision fp32"
TRAIN = f"train {SMALL} --out new"

# The command, and what its error names.
CARELESS = [
    ("train", "--out"),
    ("trian", "train, translate, evaluate"),
    (f"{TRAIN} --dropot 0.3", "--dropot"),
    (f"{TRAIN} --preset huge", "huge"),
    (f"{TRAIN} --h 3", "h=3"),
    (f"{TRAIN} --tokens-per-batch 3", "tokens_per_batch"),
    (f"{TRAIN} --device tpu", "tpu"),
    (f"{TRAIN} --languages en fr", "en-fr"),
    (f"{TRAIN} --corpus uneven", "uneven/train"),
    (f"{TRAIN} --corpus uneven --languages en en", "name two languages"),
    (f"{TRAIN} --from nowhere --preset fine-tuning", "--from: nowhere keeps"),
    ("train --limit 9 --out new --from no-words", "no-words has no tokenizer"),
    ("train --limit 9 --out new --from nowhere", "'nowhere' is no folder"),
    (f"train {SMALL} --out model", "model.safetensors"),
    (f"train {SMALL} --out file", "file is a file: name another folder"),
    ("translate --model half Hello", "has not ended"),
    ("translate --model little-spanish --beam-size 0 Hello", "beam_size=0"),
    ("translate --model little-spanish --length-penalty -1 A", "penalty=-1"),
    ("translate --model little-spanish caf\udce9", "'caf\\udce9' is not UT"),
    ("translate --model little-spanish --device tpu A", "tpu"),
    ("evaluate --model little-spanish --device tpu", "tpu"),
    ("evaluate --model little-spanish --split dev", "dev"),
    ("evaluate --model nowhere", "'nowhere' is no folder"),
    ("evaluate --model bare", "bare does not say its corpus"),
    (f"train {SMALL} --out=", "a path is empty"),
    ("average --model model --out new", "no checkpoints: give at least one"),
    ("export --model little-spanish --out model", "model"),
    ("export --model little-spanish --out file/new", "Not a directory: 'file"),
    ("export --model little-spanish --out new --to tflite", "tflite"),
]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a model, half a model, a file and a bad corpus.

    It is made once, since every test leaves it as it was.
    """
    folder = tmp_path_factory.mktemp("careless")
    model, tokenizer, info = load_model(
        Path(__file__).parents[1] / "pretrained/little-spanish"
    )
    for name in "model", "half":
        save_model(folder / name, model, tokenizer, info=info)
    languages = {"languages": ["en", "es"]}
    save_model(folder / "bare", model, tokenizer, info=languages)
    save_model(folder / "no-words", model)
    (folder / "half" / "model.safetensors").unlink()
    (folder / "file").write_text("what was here before\n")
    sides = {"en": "one\ntwo\n", "es": "one\ntwo\nthree\n"}
    write_corpus(folder / "uneven", "train", "validation", **sides)
    return folder


@pytest.fixture(autouse=True)
def is_current(here, monkeypatch):
    monkeypatch.chdir(here)


def contents(folder):
    files = (x for x in folder.rglob("*") if x.is_file())
    return {x: x.read_bytes() for x in files if x.name != ".lock"}


@pytest.mark.parametrize("words, named", CARELESS, ids=lambda x: x[-40:])
def test_a_careless_use_is_explained(words, named, here, capsys):
    before = contents(here)
    try:
        assert main(words.split()) == 2
    except SystemExit as error:  # an option that tyro does not know
        assert error.code == 2
    said = capsys.readouterr().err
    assert named in said
    assert "Traceback" not in said and "dummy" not in said  # tyro's own
    tyros = "For full helptext" in said
    assert tyros or said.splitlines()[-1].startswith("transformer_lib: ")
    assert not (here / "new").exists()
    assert contents(here) == before


class Untouched(TokenBatches):
    def epoch(self, number, start=0):
        raise AssertionError("a training has begun")


@pytest.mark.parametrize("place", ["file", "file/new"])
def test_a_file_is_no_folder(place):
    """In Python it is said as it is above, before anything is trained."""
    model = load_model("model").model
    batches, steps = Untouched([([3], [3])]), TrainingConfig()
    for write in (
        lambda: train(model, batches, steps, folder=place),
        lambda: save_model(place, model),
        lambda: save_config(place, model),
    ):
        with pytest.raises(NotADirectoryError, match="^file is a file: name"):
            write()
