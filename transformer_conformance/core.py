"""Probes, verdicts and adapters: what the suite is made of."""

import contextlib
import difflib
import importlib.util
import inspect
import linecache
import os
import random
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .clinic import likely
from .plain import Verdict, deviation, paper  # noqa: F401

# What an adapter may define, in the order of the template.
FUNCTIONS = tuple(
    (
        "build logits encode greedy greedy_batch beam_search embeddings "
        "positions attention multi_head masks feed_forward encoder_layer "
        "decoder_layer shift loss learning_rate optimizer update updates "
        "average beam"
    ).split()
)
# Those that are given functions of ours to work with.
GIVEN_PARTS = ("encoder_layer", "decoder_layer", "beam")
CONSTANTS = {"PAD": 0, "BOS": 2, "EOS": 3, "ARRAYS": "torch"}


def fault(
    diagnosis: str,
    got: Any = None,
    mistakes: Mapping[str, Any] | None = None,
    root: bool = False,
) -> Verdict:
    """A mistake, in words that help to find it.

    `mistakes` has, by its description, what each common mistake gives;
    the first that gives just what was got is the diagnosis.
    """
    known = (said for said, x in (mistakes or {}).items() if close(got, x))
    return Verdict("fault", next(known, diagnosis), root=root)


def not_tried(reason: str) -> Verdict:
    """The adapter does not show what the probe has to look at."""
    return Verdict("not tried", reason)


@dataclass(frozen=True)
class Probe:
    """A statement of the paper, and a function that tries it.

    `row` is its row of the ledger, `label` the place of the book that
    explains it. `needs` names the adapter's functions that it calls;
    "update|updates" needs one of the two. `after` names earlier probes
    whose fault would show here too: then this one follows from it.
    `source` is whether it is about the encoder, or about attention to
    what it gives, which a decoder alone has not.
    """

    row: str
    label: str
    needs: tuple[str, ...]
    function: Callable[["Adapter"], Verdict]
    after: tuple[str, ...] = ()
    source: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__.strip("_")

    @property
    def says(self) -> str:
        """What the paper says, in a sentence of ours."""
        return " ".join((self.function.__doc__ or "").split())


PROBES: list[Probe] = []


def probe(
    row: str, label: str, needs: str, after: str = "", source: bool = False
) -> Callable:
    """Register a function of an adapter as a probe; its docstring says
    what the paper says."""

    def register(function: Callable) -> Callable:
        names, causes = tuple(needs.split()), tuple(after.split())
        PROBES.append(Probe(row, label, names, function, causes, source))
        return function

    return register


class NotShown(Exception):
    """The adapter lacks something that a probe has to look at."""


class Wrong(Exception):
    """A fault that a helper of several probes has found."""


class Adapter:
    """Somebody's functions, called with their kind of arrays.

    An attribute is one of the functions: it takes tensors, and what it
    returns has become tensors. `seed` chooses all random numbers of a
    probe. A `logits(model, ids)` is that of a decoder `alone`, as GPT is;
    it is called with a source, too, which is left out.

    Args:
        functions: from names to functions, and the special ids.
        seed: of the probes.

    Raises:
        ValueError: for a name that looks like a misspelt one.
    """

    def __init__(self, functions: Mapping[str, Any], seed: int = 0):
        self.seed = seed
        self.found: dict[str, Verdict] = {}  # so far, by the probes' names
        self.functions = {}
        for name, value in functions.items():
            if name in FUNCTIONS and callable(value):
                if not _is_stub(value):
                    self.functions[name] = value
            elif inspect.isfunction(value) and not name.startswith("_"):
                like = difflib.get_close_matches(name, FUNCTIONS, 1, 0.8)
                unused = like and like[0] not in functions
                if unused and value.__module__ == functions.get("__name__"):
                    raise ValueError(
                        f"the adapter defines {name!r}: is it meant to be "
                        f"{like[0]!r}? Otherwise begin its name with _"
                    )
        chosen = {x: functions.get(x, y) for x, y in CONSTANTS.items()}
        self.PAD, self.BOS, self.EOS = (
            int(chosen[x]) for x in ("PAD", "BOS", "EOS")
        )
        # never written; eos may begin the decoder's input, as fairseq's does
        self.never = [x for x in (self.PAD, self.BOS) if x != self.EOS]
        # what others forbid: nothing, or one of them
        self.laxer = [[], self.never[:1], self.never[1:]]
        if chosen["ARRAYS"] not in ("torch", "numpy"):
            raise ValueError(
                f'ARRAYS={chosen["ARRAYS"]!r}: give "torch" or "numpy"'
            )
        self.numpy = chosen["ARRAYS"] == "numpy"
        given = self.functions.get("logits")
        self.alone = given is not None and _takes(given) == 2

    @classmethod
    def load(cls, path: str | Path, seed: int = 0) -> "Adapter":
        """The functions of a file, which may import its neighbours."""
        path = Path(path).expanduser().resolve()
        if not path.exists():
            raise ValueError(f"{path} is not there")
        name = f"adapter_{path.stem}"  # a module of its own name may exist
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"{path} is not a Python file")
        if path.read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(
                f"{path.name} is UTF-16, as Windows PowerShell's `>` writes "
                "it, and Python reads UTF-8: save it as UTF-8"
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
        return cls(vars(module), seed)

    def __getattr__(self, name: str) -> Callable:
        function = self.__dict__.get("functions", {}).get(name)
        if function is None:
            raise AttributeError(name)

        def called(*args: Any, **named: Any) -> Any:
            if self.alone and name == "logits":
                args = args[0], args[2]
            if self.numpy:
                of_arrays = _of_arrays if name in GIVEN_PARTS else _to_numpy
                args = tuple(_each(args, of_arrays))
            _bind(name, function, args, named)
            result = function(*args, **named)
            if result is None and name not in ("update", "updates"):
                raise Wrong(f"{name} returns None: does it end in `return`?")
            return _each(result, _to_tensor)

        return called

    def has(self, *names: str) -> bool:
        return all(name in self.functions for name in names)

    def ordinary(self, size: int) -> list[int]:
        """The ids of words in a vocabulary of that size."""
        special = {0, self.PAD, self.BOS, self.EOS}
        return [i for i in range(size) if i not in special]

    def words(self, *shape: int, size: int) -> Tensor:
        """Random ids of ordinary words, of a vocabulary of that size."""
        words = self.ordinary(size)
        return torch.tensor(words)[torch.randint(len(words), shape)]

    def ended(self, ids: Tensor, *lengths: int) -> Tensor:
        """Sentences of these lengths: each ends in eos, then padding."""
        ids = ids.clone()
        for row, length in enumerate(lengths):
            ids[row, length - 1] = self.EOS
            ids[row, length:] = self.PAD
        return ids

    def random(self, offset: int = 0) -> None:
        """Begin the random numbers of a probe, the same each time."""
        seed = (1000 * self.seed + offset) % 2**32
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(seed)


def _takes(function: Callable) -> int:
    """How many arguments without a default it takes."""
    given = inspect.signature(function).parameters.values()
    return sum(
        x.default is x.empty
        and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
        for x in given
    )


def _bind(name: str, function: Callable, args: tuple, named: dict) -> None:
    """See that a function takes the template's arguments."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some of PyTorch's own have none
        return
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        raise Wrong(
            f"{name}{signature} is called with other arguments: {error}"
        ) from None


def _is_stub(function: Callable) -> bool:
    """Whether it only raises NotImplementedError, as in the template."""
    code = _code(function)
    return code is not None and code.co_names == ("NotImplementedError",)


def _each(value: Any, change: Callable) -> Any:
    """A value, or each of a tuple's, list's or dict's, changed."""
    if type(value) in (tuple, list):
        return type(value)(_each(x, change) for x in value)
    if type(value) is dict:
        return {name: _each(x, change) for name, x in value.items()}
    return change(value)


def _to_numpy(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _of_arrays(value: Any) -> Any:
    """An array for a tensor, and for a part one that works on arrays."""
    if isinstance(value, Tensor) or not callable(value):
        return _to_numpy(value)

    def part(*args: Any) -> Any:
        return _each(value(*_each(args, _to_tensor)), _to_numpy)

    return part


def _to_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        return value
    value = torch.as_tensor(value)
    return value.float() if value.is_floating_point() else value


def close(a: Any, b: Any, within: float = 1e-4) -> bool:
    """Whether two tensors have one shape and, nearly, one content.

    Rounding in single precision takes some 1e-6 of the largest number.
    """
    a, b = torch.as_tensor(a).double(), torch.as_tensor(b).double()
    if a.shape != b.shape or not a.isfinite().all():
        return False
    size = max(b.abs().max().item(), 1e-3) if b.numel() else 1.0
    return bool((a - b).abs().max() <= within * size) if b.numel() else True


@dataclass(frozen=True)
class Result:
    """A probe's verdict on an adapter.

    `cause` is the probe that has found what shows here again.
    """

    probe: Probe
    verdict: Verdict
    seconds: float
    cause: Probe | None = None


def run(
    adapter: Adapter, probes: Iterable[Probe] | None = None
) -> Iterator[Result]:
    """The verdicts, one after the other.

    The caller's own random numbers go on as if nothing had happened.
    Models this small are computed fastest by one thread.
    """
    found: dict[str, Result] = {}
    adapter.found.clear()
    for one in PROBES if probes is None else probes:
        start = time.perf_counter()
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            verdict = _verdict(adapter, one)
        finally:
            torch.set_num_threads(threads)
        seconds = time.perf_counter() - start
        result = Result(one, verdict, seconds, _cause(one, verdict, found))
        found[one.name] = result
        adapter.found[one.name] = verdict
        yield result


def _cause(
    one: Probe, verdict: Verdict, found: Mapping[str, Result]
) -> Probe | None:
    """The earlier probe that has found the same, if there is one.

    A fault follows from the fault of a probe in `after`, a deviation
    from one of its own name there. The same line that raises an error
    again is one fault, and so are the same words.
    """
    for earlier in found.values():
        theirs = earlier.verdict
        if theirs.kind != verdict.kind or verdict.root:
            continue
        before = earlier.probe.name in one.after
        if verdict.kind == "fault":
            line = verdict.line and theirs.line == verdict.line
            same = before or line or theirs.words == verdict.words
        else:
            same = before and theirs.name == verdict.name != ""
        if same:
            return earlier.cause or earlier.probe
    return None


FIRST = "shape"  # the probe without which no other of a model is tried


def _verdict(adapter: Adapter, one: Probe) -> Verdict:
    missing = [
        names.replace("|", " or ")
        for names in one.needs
        if not any(adapter.has(name) for name in names.split("|"))
    ]
    if missing:
        return not_tried(f"the adapter has no {' and no '.join(missing)}")
    if one.source and adapter.alone:
        return not_tried("a decoder alone has no encoder to attend to")
    first = adapter.found.get(FIRST)
    if first and first.kind == "fault" and "logits" in one.needs:
        return not_tried(f"mend `{FIRST}` first: the model gives no scores")
    before = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            adapter.random()
            return one.function(adapter)
    except NotShown as reason:
        return not_tried(str(reason))
    except Wrong as diagnosis:
        return fault(str(diagnosis))
    except (Exception, SystemExit) as error:
        codes = [f.f_code for f, _ in traceback.walk_tb(error.__traceback__)]
        theirs = set().union(*map(_codes, adapter.functions.values()))
        # a model that lacks something is no part that is left out
        if isinstance(error, NotImplementedError) and codes[-1] in theirs:
            return not_tried(str(error) or "not implemented")
        line = own_line(error)
        # what models return is looked at where it is asked for
        if "build" in one.needs and not (line or theirs & {*codes}):
            return not_tried(
                "the probe met something that it does not know, which is no "
                f"fault of yours ({said_by(error)})"
            )
        return Verdict("fault", explain(error), line=line)
    finally:
        np.random.set_state(before[0])
        random.setstate(before[1])


# Where a line of the reader's own never is.
_HERE = Path(__file__).parent
_FOLDERS = (
    _HERE,
    *(_HERE.with_name(f"transformer_{name}") for name in ("lib", "book")),
    *(sysconfig.get_path(p) for p in ("stdlib", "purelib", "platlib")),
)
_OURS = (*(f"{folder}{os.sep}" for folder in _FOLDERS), "<frozen")


def _code(function: Callable) -> Any:
    """Its own, and not that of PyTorch's `no_grad` around it, which the
    suite's have, too."""
    return getattr(inspect.unwrap(function), "__code__", None)


def _codes(function: Callable) -> set:
    """Of a class, those of its methods."""
    inside = vars(function).values() if isinstance(function, type) else ()
    return {_code(x) for x in (function, *inside) if callable(x)}


def said_by(error: BaseException) -> str:
    """An error's kind and words."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def explain(error: BaseException) -> str:
    """What went wrong, in a sentence or two, with the reader's line."""
    said = said_by(error)
    place = own_line(error)
    if place:
        cause = likely(error)
        return f"your code raised {said}\n  at {place}" + (
            f"\n  {cause[0].upper()}{cause[1:]}" if cause else ""
        )
    if "NoneType" in said:
        return "your code returns None where a value is asked for"
    return (
        f"the probe could not use what your code returned: {said}\n"
        "  Does it take the arguments asked for, and return a value?"
    )


def own_line(error: BaseException) -> str:
    """The last line of the reader's that led to an error, or ''."""
    place = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            text = linecache.getline(code.co_filename, number).strip()
            file = Path(code.co_filename).name
            place = f"{file}, line {number} of {code.co_name}: {text}"
    return place.removesuffix(": ")


@contextlib.contextmanager
def mode(model: Any, training: bool) -> Iterator[None]:
    """A model in training or evaluation mode, if it knows these."""
    if not isinstance(model, nn.Module):
        yield
        return
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was
