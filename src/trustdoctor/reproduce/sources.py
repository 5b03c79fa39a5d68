"""Where an experiment's predictions come from: files, or a model and its data set.

A prediction file is called MODEL-DATASET-KIND or DATASET-MODEL-KIND. KIND is `test` or
`tbb` for the clean predictions, `train` for those of the training rows, and
`SCORE-T1-eps0.00035` (`pbb-` may go before it) for those at perturbed inputs, softmax
outputs then being at that temperature. An NPZ of clean logits may hold perturbed ones
as arrays `pbb_SCORE_T1_eps0.00035`.

Files in a folder called `public` are those of public models, which are other nets than
the paper's. What is printed says so.
"""

import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError, InputError, TrustDoctorError
from trustdoctor.files import SETTING, read, read_perturbed
from trustdoctor.predictions import Predictions
from trustdoctor.reproduce.bench import Bench
from trustdoctor.reproduce.datasets import DATASETS, Dataset, find_dataset, places
from trustdoctor.reproduce.experiment import Options, choose_rows
from trustdoctor.reproduce.formats import holds_examples

_STEM = re.compile(
    rf"(?:(?P<before>.+)-)?(?P<data>{'|'.join(DATASETS)})(?:-(?P<after>.+?))?"
    rf"-(?P<kind>tbb|test|train|(?:pbb-)?{SETTING})"
)
SUFFIXES = (".npz", ".csv", ".parquet")
PUBLIC = "public"
SMALL = 32
"""Pixels on a side of images that a processor differentiates in milliseconds."""

_PRINTED = (
    (r"resnet(\d+)", r"ResNet-\1"),
    (r"vgg(\d+)_bn", r"VGG-\1-BN"),
    (r"repvgg_a(\d+)", r"RepVGG-A\1"),
    (r"mobilenetv2_x(\d+)_(\d+)", r"MobileNetV2 x\1.\2"),
    (r"shufflenetv2_x(\d+)_(\d+)", r"ShuffleNetV2 x\1.\2"),
)
"""How pytorch-cifar-models calls its nets, and what they are called in print."""

Key = tuple[str, str, bool]
"""An exhibit's data set and model, and whether the model is a public one."""


class Setting(NamedTuple):
    """A score, its temperature, and the magnitude of the perturbation."""

    score: str
    temperature: float = 1.0
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model answered.

    Attributes
    ----------
    predictions : Predictions
    probs : array (n, C), or None
        The softmax as it was stored: the published evaluation depends on how it was
        rounded.
    at : float
        The temperature at which the softmax was taken.
    authors : bool
        Whether the file has the arrays of those that the paper's authors published.
    """

    predictions: Predictions
    probs: NDArray[Any] | None = None
    at: float = 1.0
    authors: bool = False

    def softmax(self, temperature: float = 1.0) -> NDArray[Any]:
        """Return the softmax, as stored or in float32, as models put it out."""
        if self.probs is not None and temperature == self.at:
            return self.probs
        z = self.predictions.logits.astype(np.float32)
        z = (z - z.max(1, keepdims=True)) * np.float32(self.at / temperature)
        e = np.exp(z)
        return np.asarray(e / e.sum(1, keepdims=True))

    def take(self, rows: Any) -> "Answers":
        """Return some of the rows."""
        probs = None if self.probs is None else self.probs[rows]
        return Answers(self.predictions[rows], probs, self.at, self.authors)


@dataclass(eq=False)
class Exhibit:
    """The predictions of one model on one data set.

    Attributes
    ----------
    dataset : Dataset
    model : str
    clean : Answers
        With labels.
    files : list of str
        What it was read from.
    train : Answers or None
        On the training rows.
    stored : dict of Setting to Answers
        At perturbed inputs.
    make_bench : callable
        Loads the model itself, where it is there to be run: what comes is `bench`.
    lack : str
        What keeps the model from being run, once that was tried.
    images : array or None
        What the bench is run on, if not on its own images.
    public : bool
        Whether it is a public model, and so not the paper's net.
    """

    dataset: Dataset
    model: str
    clean: Answers
    files: list[str] = field(default_factory=list)
    train: Answers | None = None
    stored: dict[Setting, Answers] = field(default_factory=dict)
    make_bench: Callable[["Exhibit"], Bench | None] | None = None
    lack: str = ""
    images: NDArray[np.uint8] | None = None
    public: bool = False

    @cached_property
    def bench(self) -> Bench | None:
        """The model itself, loaded when it is first asked for."""
        return None if self.make_bench is None else self.make_bench(self)

    @property
    def net(self) -> str:
        """The model, in print."""
        return printed_net(self.model) if self.public else self.model

    @property
    def name(self) -> str:
        """Whose predictions on what, in print."""
        origin = f" ({PUBLIC})" if self.public else ""
        return f"{self.dataset.title}, {self.net}{origin}"

    @property
    def slug(self) -> str:
        """The same, in the names of files."""
        origin = f"-{PUBLIC}" if self.public else ""
        return f"{self.dataset.name}-{self.model}{origin}"

    @property
    def accuracy(self) -> float:
        """The accuracy of the clean predictions, in percent."""
        return 100 * (1 - float(self.clean.predictions.errors.mean()))

    @property
    def title(self) -> str:
        """The name, with the number of rows and the accuracy."""
        other = ", not the paper's net" if self.public else ""
        n = len(self.clean.predictions)
        return f"{self.name}{other}: {n:,} rows, accuracy {self.accuracy:.2f}"

    @property
    def only_clean(self) -> bool:
        """Whether there is nothing but the clean predictions of the test rows."""
        return self.train is None and not self.stored and self.make_bench is None

    def perturbed(self, setting: Setting) -> Answers | None:
        """Return the answers at perturbed inputs: stored ones, or made by the model."""
        if setting in self.stored:
            return self.stored[setting]
        if setting.epsilon == 0:
            return self.clean
        if self.bench is None:
            return None
        found = self.bench.logits(*setting, images=self.images)
        return Answers(Predictions.from_logits(found, self.clean.predictions.labels))


def find_exhibits(options: Options, *, labelled: bool = True) -> list[Exhibit]:
    """Gather what `--predictions`, `--data` and `--model` name.

    All have labels, their own or the data set's, unless `labelled` is False.
    """
    found: dict[Key, Exhibit] = {}
    if options.predictions is not None:
        one = _single(options.predictions, options)
        found[one.dataset.name, one.model, one.public] = one
    elif options.data is not None:
        found = _stored(options.data)
    if labelled:
        for one in found.values():
            _add_labels(one, options.data)
    if options.predictions is None and options.model is None and options.dataset:
        found = {key: one for key, one in found.items() if key[0] == options.dataset}
    found = {key: _sampled(one, options) for key, one in found.items()}
    if options.model is not None:
        _add_bench(found, Bench.load(options), options)
    names = list(DATASETS)
    exhibits = sorted(found.values(), key=lambda one: names.index(one.dataset.name))
    if options.data is not None and options.model is None:
        _offer_nets(exhibits, options)
    return exhibits


def _add_bench(found: dict[Key, Exhibit], bench: Bench, options: Options) -> None:
    """Give the model to its stored predictions, or make its clean ones."""
    keys = [(options.about, bench.name, public) for public in (False, True)]
    for key in keys:
        if key in found and _same(found[key], bench):
            found[key].make_bench = lambda _one: bench
            return
    clean = Answers(Predictions.from_logits(bench.logits(), bench.labels))
    dataset = find_dataset(options.about)
    one = Exhibit(dataset, bench.name, clean, make_bench=lambda _one: bench)
    found[keys[0]] = one


def _offer_nets(exhibits: list[Exhibit], options: Options) -> None:
    """Let the nets whose weights are in the data folder be run when asked for."""
    assert options.data is not None
    for i, one in enumerate(exhibits):
        weights = None if one.public else _find_weights(one, options.data)
        if weights is not None:
            tell = partial(_tell_share, options, i, len(exhibits), one.name)
            one.make_bench = partial(
                _bench_of, weights=weights, options=replace(options, tell=tell)
            )


def _tell_share(  # noqa: PLR0913 - what is known beforehand, then what is told
    options: Options, i: int, n: int, name: str, share: float, what: str
) -> None:
    """Tell of one exhibit's work as its share of all exhibits' work."""
    options.tell((i + share) / n, f"{name}: {what}")


def _find_weights(one: Exhibit, folder: Path) -> Path | None:
    names = (f"{one.model}-{one.dataset.name}", one.model)
    for name in (*names, f"{names[0]}-head"):
        for path in places(folder, f"{name}.safetensors"):
            return path
    return None


def _bench_of(one: Exhibit, weights: Path, options: Options) -> Bench | None:
    """Load a net by its weights; where that fails, the exhibit says why."""
    if find_spec("torch") is None:
        one.lack = f"torch, to run {weights.name}"
        return None
    from trustdoctor.adapters.torch.nets import known_net, load_net

    net = known_net(weights.stem)
    assert options.data is not None
    if net is None:
        one.lack = f"--model FILE.py:NAME, since {weights.name} is of no known net"
    elif one.dataset.locate(options.data) is None:
        one.lack = f"images to run {weights.name} on"
    else:
        try:
            bench = Bench.of(load_net(net, weights), one.dataset, options)
        except TrustDoctorError as error:
            one.lack = str(error)
            return None
        if _same(one, bench):
            return bench
        one.lack = f"other weights: {weights.name} does not give these predictions"
    return None


def read_answers(path: Path, at: float = 1.0) -> Answers:
    """Read a prediction file, keeping a stored softmax to the bit."""
    if path.suffix.lower() != ".npz":
        p = read(path, need_labels=False)
        return Answers(p, np.exp(p.logits) if p.from_probabilities else None, at)
    names = _array_names(path)
    authors = "values" in names and not {"logits", "probs"} & names
    name = "values" if authors else "probs"
    p = read(path, probs=name if authors else None, need_labels=False)
    stored = None
    if p.from_probabilities and name in names:  # read has checked what is there
        with np.load(path, allow_pickle=False) as archive:
            stored = archive[name]
    return Answers(p, stored, at, authors)


def _array_names(path: Path) -> set[str]:
    """Return the names of an NPZ's arrays; none where `read` says what is wrong."""
    if not path.is_file():
        return set()
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:  # a damaged archive fails in many ways
        return set()


def check_sources(options: Options) -> None:
    """Say how to name predictions where none are named."""
    if (options.predictions, options.data, options.model) == (None, None, None):
        message = (
            "this needs predictions: --data DIR with data sets and prediction files "
            "(DIR/MODEL-DATASET-test.npz), or --predictions FILE --dataset NAME."
        )
        raise InputError(message)


def require_exhibits(options: Options) -> list[Exhibit]:
    """Find predictions with labels, or say where they belong."""
    check_sources(options)
    found = find_exhibits(options)
    if not found:
        message = (
            f"there are no predictions in {options.data}. Put some there, called "
            "MODEL-DATASET-test.npz (as resnet-20-cifar10-test.npz), or name a --model."
        )
        raise InputError(message)
    return found


def require_both_kinds(options: Options) -> tuple[list[Exhibit], tuple[str, ...]]:
    """Find predictions, some right and some wrong; say what was left out."""
    found = require_exhibits(options)
    good = [one for one in found if 0 < one.clean.predictions.errors.mean() < 1]
    if not good:
        message = (
            "the evaluation needs rows of both kinds, right and wrong. Take more rows."
        )
        raise InputError(message)
    left = (one for one in found if one not in good)
    return good, tuple(
        f"{one.name}: left out, since its rows are all right or all wrong."
        for one in left
    )


def different_models(options: Options) -> tuple[list[Exhibit], tuple[str, ...]]:
    """Find the same, each model once: one may be stored under two names."""
    found, notes = require_both_kinds(options)
    kept: list[Exhibit] = []
    for one in found:
        twin = next((other for other in kept if _same_logits(one, other)), None)
        if twin is None:
            kept.append(one)
        else:
            notes += (f"{one.name}: left out, since it has the logits of {twin.name}.",)
    return kept, notes


def _same_logits(one: Exhibit, other: Exhibit) -> bool:
    first, second = (exhibit.clean.predictions for exhibit in (one, other))
    if first.logits.shape != second.logits.shape:
        return False
    own = first.require_labels("telling models apart")
    others = second.require_labels("telling models apart")
    same = np.array_equal(own, others)
    return same and np.allclose(first.logits, second.logits, atol=1e-3)


def small_exhibits(options: Options) -> tuple[list[Exhibit], list[str]]:
    """Return those runnable exhibits that a processor gets through, and name the rest.

    Whoever names a data set or a model gets it whatever it takes.
    """
    found = runnable_exhibits(options)
    if options.dataset is not None or options.model is not None:
        return found, []
    small = [one for one in found if _side(one) <= SMALL]
    return small, [
        f"{one.name}: left out, since its images are larger than {SMALL} x {SMALL}, "
        f"which takes a processor long. --dataset {one.dataset.name} runs it."
        for one in found
        if one not in small
    ]


def _side(one: Exhibit) -> int:
    return 0 if one.bench is None else max(one.bench.images.shape[1:3])


def runnable_exhibits(options: Options) -> list[Exhibit]:
    """Return the exhibits with a bench: of `--model`, or of weights in the data."""
    if options.data is None:
        Bench.load(options)  # says what is missing
    exhibits = find_exhibits(options)
    found = [one for one in exhibits if one.bench is not None]
    if not found:
        lacks = "; ".join(
            f"{one.name} needs {one.lack}" for one in exhibits if one.lack
        )
        message = (
            "this runs a model on images: --model FILE.py:NAME --weights FILE --data "
            "DIR, where DIR holds the data set, or a DIR that holds MODEL-DATASET-test"
            f".npz, the data set and MODEL-DATASET.safetensors.{lacks and ' '}{lacks}"
        )
        raise InputError(message)
    return found


def _single(path: Path, options: Options) -> Exhibit:
    answers = read_answers(path)
    parsed = _STEM.fullmatch(path.stem)
    named = parsed["data"] if parsed else options.about
    dataset = find_dataset(options.dataset or named)
    model = path.stem
    if parsed:
        model = parsed["before"] or parsed["after"] or model
    one = Exhibit(dataset, model, answers, [path.name], public=_is_public(path))
    _add_arrays(one, path)
    return one


def _is_public(path: Path) -> bool:
    return path.absolute().parent.name == PUBLIC


def printed_net(model: str) -> str:
    """Return the name of a public net as it is printed; other names stay."""
    for pattern, shown in _PRINTED:
        if parsed := re.fullmatch(pattern, model):
            return parsed.expand(shown)
    return model


def _stored(folder: Path) -> dict[Key, Exhibit]:
    parts: dict[Key, dict[Any, Path]] = {}
    for path, parsed in _prediction_files(folder):
        model = parsed["before"] or parsed["after"] or "model"
        key = (parsed["data"], model, _is_public(path))
        kind: Any = parsed["kind"]
        if parsed["score"]:
            kind = _setting(parsed)
        parts.setdefault(key, {})["test" if kind == "tbb" else kind] = path
    found = {}
    for key, kinds in parts.items():
        if "test" not in kinds:
            continue
        name, model, public = key
        clean = read_answers(kinds["test"])
        one = Exhibit(find_dataset(name), model, clean, public=public)
        one.files = sorted(path.name for path in kinds.values())
        shape = one.clean.predictions.logits.shape
        for kind, path in kinds.items():
            if isinstance(kind, Setting):
                answers = read_answers(path, kind.temperature)
                _check_shape(path, answers, shape)
                one.stored[kind] = answers
            elif kind == "train":
                one.train = read_answers(path)
                _check_shape(path, one.train, (None, shape[1]))
        _add_arrays(one, kinds["test"])
        found[key] = one
    return found


def _check_shape(path: Path, answers: Answers, wanted: tuple[int | None, int]) -> None:
    n, classes = answers.predictions.logits.shape
    if classes != wanted[1] or wanted[0] not in (None, n):
        rows = "" if wanted[0] is None else f"{wanted[0]:,} rows of "
        message = (
            f"{path} has {n:,} rows of {classes} classes, the clean predictions of "
            f"the same model have {rows}{wanted[1]} classes."
        )
        raise FileError(message)


def _prediction_files(folder: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for path in _tables(folder):
        parsed = _STEM.fullmatch(path.stem)
        if parsed and (path.suffix == ".npz" or not holds_examples(path)):
            yield path, parsed


def _tables(folder: Path) -> Iterator[Path]:
    """Yield what may hold predictions in the folder, and one folder further down.

    A folder of public nets is found one folder further down still.
    """
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir())
        nets = [path / PUBLIC for path in inner if (path / PUBLIC).is_dir()]
        for parent in (folder, *inner, *nets):
            for path in sorted(parent.iterdir()):
                if path.suffix in SUFFIXES:
                    yield path
    except OSError as error:
        message = f"cannot read the folder {folder}: {error.strerror}."
        raise FileError(message) from error


def passed_over(folder: Path) -> tuple[str, ...]:
    """Name the tables in a folder that were not read as predictions, and say why."""
    examples, unnamed = [], []
    for path in _tables(folder):
        if path.suffix != ".npz" and holds_examples(path):
            examples.append(path.name)
        elif not _STEM.fullmatch(path.stem):
            unnamed.append(path.name)
    notes = []
    if examples:
        held = ", ".join(examples)
        notes.append(f"Images or texts, so not read as predictions: {held}.")
    if unnamed:
        notes.append(
            f"Passed over, since MODEL-DATASET-test is how predictions are called: "
            f"{', '.join(unnamed)}."
        )
    return tuple(notes)


def _setting(parsed: re.Match[str]) -> Setting:
    return Setting(parsed["score"], float(parsed["t"]), float(parsed["eps"] or 0))


def _add_arrays(one: Exhibit, path: Path) -> None:
    p = one.clean.predictions
    for setting, logits in read_perturbed(path).items():
        try:
            answers = Answers(Predictions.from_logits(logits, p.labels))
        except InputError as error:
            message = f"{path}, perturbed logits: {error}"
            raise FileError(message) from error
        _check_shape(path, answers, p.logits.shape)
        one.stored[Setting(*setting)] = answers


def _add_labels(one: Exhibit, folder: Path | None) -> None:
    """Take missing labels from the data set, in the order of its files."""
    p = one.clean.predictions
    if p.labels is not None:
        return
    if folder is None or one.dataset.locate(folder) is None:
        p.require_labels(f"{one.files or one.model}")
    assert folder is not None
    labels = one.dataset.load(folder).labels
    if labels is None or len(labels) != len(p):
        message = f"{one.files} has {len(p):,} rows, its data set another number."
        raise InputError(message)
    one.clean = _with_labels(one.clean, labels)
    for setting, answers in one.stored.items():
        if answers.predictions.labels is None:
            one.stored[setting] = _with_labels(answers, labels)


def _with_labels(answers: Answers, labels: Any) -> Answers:
    known = replace(answers.predictions, labels=labels)
    return replace(answers, predictions=known)


def _same(one: Exhibit, bench: Bench) -> bool:
    """Tell whether stored predictions are of this very model and these rows."""
    p = one.clean.predictions
    if p.labels is None or p.from_probabilities:
        return False
    return np.array_equal(p.labels, bench.labels) and bench.agrees(p.logits)


def _sampled(one: Exhibit, options: Options) -> Exhibit:
    """Take some rows of the stored answers: the same ones that a bench takes."""
    rows = choose_rows(len(one.clean.predictions), options)
    if rows is None:
        return one
    one.clean = one.clean.take(rows)
    one.stored = {key: answers.take(rows) for key, answers in one.stored.items()}
    return one
