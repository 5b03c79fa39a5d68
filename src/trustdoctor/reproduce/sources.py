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
from trustdoctor.reproduce.datasets import DATASETS, Dataset, find_dataset, places
from trustdoctor.reproduce.experiment import Options, choose_rows
from trustdoctor.reproduce.formats import holds_examples
from trustdoctor.reproduce.model_run import ModelRun

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


class ScoreSetting(NamedTuple):
    """A score, its temperature, and the magnitude of the perturbation."""

    score: str
    temperature: float = 1.0
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """A model's predictions, and its softmax as it was stored.

    Attributes
    ----------
    predictions : Predictions
    probs : array (n, C), or None
        The softmax as it was stored: the published evaluation depends on how it was
        rounded.
    softmax_temperature : float
        The temperature at which the softmax was taken.
    by_authors : bool
        Whether the file has the arrays of those that the paper's authors published.
    """

    predictions: Predictions
    probs: NDArray[Any] | None = None
    softmax_temperature: float = 1.0
    by_authors: bool = False

    def softmax(self, temperature: float = 1.0) -> NDArray[Any]:
        """Return the softmax as it was stored, or in float32, as models compute it."""
        if self.probs is not None and temperature == self.softmax_temperature:
            return self.probs
        # The published evaluation saw float32, in which the surest rows are exactly 1.
        z = self.predictions.logits.astype(np.float32)
        ratio = np.float32(self.softmax_temperature / temperature)
        e = np.exp((z - z.max(1, keepdims=True)) * ratio)
        return np.asarray(e / e.sum(1, keepdims=True))

    def take(self, rows: Any) -> "ModelOutput":
        """Return some of the rows."""
        probs = None if self.probs is None else self.probs[rows]
        return replace(self, predictions=self.predictions[rows], probs=probs)

    def with_labels(self, labels: NDArray[Any]) -> "ModelOutput":
        """Return the same output with labels."""
        return replace(self, predictions=replace(self.predictions, labels=labels))


@dataclass(eq=False)
class Exhibit:
    """The predictions of one model on one data set.

    Attributes
    ----------
    dataset : Dataset
    model : str
    clean : ModelOutput
        With labels.
    files : list of str
        What it was read from.
    train : ModelOutput or None
        On the training rows.
    stored : dict of ScoreSetting to ModelOutput
        At perturbed inputs.
    load_run : callable
        Loads the model itself, if it can be run: the result is `model_run`.
    needed_to_run : str
        What the model lacks to be run, once that was tried.
    images : array or None
        What the model is run on, if not on its data set's test images.
    public : bool
        Whether it is a public model, and so not the paper's net.
    """

    dataset: Dataset
    model: str
    clean: ModelOutput
    files: list[str] = field(default_factory=list)
    train: ModelOutput | None = None
    stored: dict[ScoreSetting, ModelOutput] = field(default_factory=dict)
    load_run: Callable[["Exhibit"], ModelRun | None] | None = None
    needed_to_run: str = ""
    images: NDArray[np.uint8] | None = None
    public: bool = False

    @cached_property
    def model_run(self) -> ModelRun | None:
        """The model itself, loaded at the first use."""
        return None if self.load_run is None else self.load_run(self)

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
        return self.train is None and not self.stored and self.load_run is None

    def perturbed(self, setting: ScoreSetting) -> ModelOutput | None:
        """Return the output at perturbed inputs: stored, or computed by the model."""
        if setting in self.stored:
            return self.stored[setting]
        if setting.epsilon == 0:
            return self.clean
        if self.model_run is None:
            return None
        logits = self.model_run.logits(*setting, images=self.images)
        labels = self.clean.predictions.labels
        return ModelOutput(Predictions.from_logits(logits, labels))


def find_exhibits(options: Options, *, labelled: bool = True) -> list[Exhibit]:
    """Gather what `--predictions`, `--data` and `--model` name.

    All have labels, their own or the data set's, unless `labelled` is False.
    """
    by_key = _stored_exhibits(options)
    if labelled:
        for exhibit in by_key.values():
            _add_labels(exhibit, options.data)
    if options.predictions is None and options.model is None and options.dataset:
        by_key = {key: e for key, e in by_key.items() if key[0] == options.dataset}
    for exhibit in by_key.values():
        _sample(exhibit, options)
    if options.model is not None:
        _add_model(by_key, ModelRun.load(options), options)
    names = list(DATASETS)
    exhibits = sorted(by_key.values(), key=lambda e: names.index(e.dataset.name))
    if options.data is not None and options.model is None:
        _offer_nets(exhibits, options)
    return exhibits


def _stored_exhibits(options: Options) -> dict[Key, Exhibit]:
    if options.predictions is not None:
        exhibit = _exhibit_of_file(options.predictions, options)
        return {_key(exhibit): exhibit}
    return {} if options.data is None else _exhibits_of_folder(options.data)


def _key(exhibit: Exhibit) -> Key:
    return exhibit.dataset.name, exhibit.model, exhibit.public


def _add_model(
    by_key: dict[Key, Exhibit], model_run: ModelRun, options: Options
) -> None:
    """Give the model to its stored predictions, or make an exhibit of it."""
    for public in (False, True):
        exhibit = by_key.get((options.about, model_run.name, public))
        if exhibit is not None and _is_of_model(exhibit, model_run):
            exhibit.load_run = lambda _exhibit: model_run
            return
    predictions = Predictions.from_logits(model_run.logits(), model_run.labels)
    exhibit = Exhibit(
        find_dataset(options.about),
        model_run.name,
        ModelOutput(predictions),
        load_run=lambda _exhibit: model_run,
    )
    by_key[_key(exhibit)] = exhibit


def _offer_nets(exhibits: list[Exhibit], options: Options) -> None:
    """Let the nets whose weights are in the data folder be run on demand."""
    assert options.data is not None
    for i, exhibit in enumerate(exhibits):
        weights = None if exhibit.public else _find_weights(exhibit, options.data)
        if weights is not None:
            tell = partial(_tell_share, options, i, len(exhibits), exhibit.name)
            exhibit.load_run = partial(
                _load_net_run, weights=weights, options=replace(options, tell=tell)
            )


def _tell_share(  # noqa: PLR0913 - what is fixed beforehand, then what is told
    options: Options, i: int, n: int, name: str, share: float, doing: str
) -> None:
    """Tell of one exhibit's work as its share of all exhibits' work."""
    options.tell((i + share) / n, f"{name}: {doing}")


def _find_weights(exhibit: Exhibit, folder: Path) -> Path | None:
    names = (f"{exhibit.model}-{exhibit.dataset.name}", exhibit.model)
    for name in (*names, f"{names[0]}-head"):
        for path in places(folder, f"{name}.safetensors"):
            return path
    return None


def _load_net_run(exhibit: Exhibit, weights: Path, options: Options) -> ModelRun | None:
    """Load a net by its weights; if that fails, set what is needed to run it."""
    if find_spec("torch") is None:
        exhibit.needed_to_run = f"torch, to run {weights.name}"
        return None
    from trustdoctor.reproduce.nets import known_net, load_net

    net = known_net(weights.stem)
    assert options.data is not None
    if net is None:
        exhibit.needed_to_run = (
            f"--model FILE.py:NAME, since {weights.name} is of no known net"
        )
    elif exhibit.dataset.locate(options.data) is None:
        exhibit.needed_to_run = f"images to run {weights.name} on"
    else:
        try:
            local = load_net(net, weights)
            model_run = ModelRun.on_test_images(local, exhibit.dataset, options)
        except TrustDoctorError as error:
            exhibit.needed_to_run = str(error)
            return None
        # A file of that name can hold the weights of another training run.
        if _is_of_model(exhibit, model_run):
            return model_run
        exhibit.needed_to_run = (
            f"other weights: {weights.name} does not give these predictions"
        )
    return None


def read_output(path: Path, softmax_temperature: float = 1.0) -> ModelOutput:
    """Read a prediction file, keeping a stored softmax to the bit."""
    if path.suffix.lower() != ".npz":
        p = read(path, need_labels=False)
        probs = np.exp(p.logits) if p.from_probabilities else None
        return ModelOutput(p, probs, softmax_temperature)
    names = _array_names(path)
    by_authors = "values" in names and not {"logits", "probs"} & names
    name = "values" if by_authors else "probs"
    p = read(path, probs=name if by_authors else None, need_labels=False)
    stored = None
    if p.from_probabilities and name in names:  # read has checked what is there
        with np.load(path, allow_pickle=False) as archive:
            stored = archive[name]
    return ModelOutput(p, stored, softmax_temperature, by_authors)


def _array_names(path: Path) -> set[str]:
    """Return the names of an NPZ's arrays; none if `read` will say what is wrong."""
    if not path.is_file():
        return set()
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:  # a damaged archive fails in many ways
        return set()


def check_sources(options: Options) -> None:
    """Refuse options that name no predictions."""
    if (options.predictions, options.data, options.model) == (None, None, None):
        message = (
            "this needs predictions: --data DIR with data sets and prediction files "
            "(DIR/MODEL-DATASET-test.npz), or --predictions FILE --dataset NAME."
        )
        raise InputError(message)


def require_exhibits(options: Options) -> list[Exhibit]:
    """Find predictions with labels; if there are none, say where they belong."""
    check_sources(options)
    exhibits = find_exhibits(options)
    if not exhibits:
        message = (
            f"there are no predictions in {options.data}. Put some there, called "
            "MODEL-DATASET-test.npz (as resnet-20-cifar10-test.npz), or name a --model."
        )
        raise InputError(message)
    return exhibits


def require_both_kinds(options: Options) -> tuple[list[Exhibit], tuple[str, ...]]:
    """Find predictions, some right and some wrong; say what was left out."""
    exhibits = require_exhibits(options)
    mixed = [e for e in exhibits if 0 < e.clean.predictions.errors.mean() < 1]
    if not mixed:
        message = (
            "the evaluation needs rows of both kinds, right and wrong. Take more rows."
        )
        raise InputError(message)
    return mixed, tuple(
        f"{exhibit.name}: left out, since its rows are all right or all wrong."
        for exhibit in exhibits
        if exhibit not in mixed
    )


def different_models(options: Options) -> tuple[list[Exhibit], tuple[str, ...]]:
    """Do the same, with each model once: one may be stored under two names."""
    exhibits, notes = require_both_kinds(options)
    distinct: list[Exhibit] = []
    for exhibit in exhibits:
        twin = next((other for other in distinct if _same_logits(exhibit, other)), None)
        if twin is None:
            distinct.append(exhibit)
        else:
            notes += (
                f"{exhibit.name}: left out, since it has the logits of {twin.name}.",
            )
    return distinct, notes


def _same_logits(exhibit: Exhibit, other: Exhibit) -> bool:
    first, second = exhibit.clean.predictions, other.clean.predictions
    # The same net run on two machines differs by rounding.
    return (
        first.logits.shape == second.logits.shape
        and np.array_equal(
            first.require_labels("telling models apart"),
            second.require_labels("telling models apart"),
        )
        and np.allclose(first.logits, second.logits, atol=1e-3)
    )


def small_exhibits(options: Options) -> tuple[list[Exhibit], list[str]]:
    """Return the runnable exhibits of small images, and notes on the others.

    A data set or a model that is named runs, however long that takes.
    """
    runnable = runnable_exhibits(options)
    if options.dataset is not None or options.model is not None:
        return runnable, []
    small = [exhibit for exhibit in runnable if _longest_side(exhibit) <= SMALL]
    return small, [
        f"{exhibit.name}: left out, since its images are larger than {SMALL} x "
        f"{SMALL}, which takes a processor long. --dataset {exhibit.dataset.name} "
        "runs it."
        for exhibit in runnable
        if exhibit not in small
    ]


def _longest_side(exhibit: Exhibit) -> int:
    run = exhibit.model_run
    return 0 if run is None else max(run.images.shape[1:3])


def runnable_exhibits(options: Options) -> list[Exhibit]:
    """Return the exhibits whose model can be run: `--model`, or weights in the data."""
    if options.data is None:
        ModelRun.load(options)  # says what is missing
    exhibits = find_exhibits(options)
    runnable = [exhibit for exhibit in exhibits if exhibit.model_run is not None]
    if not runnable:
        needs = "; ".join(
            f"{exhibit.name} needs {exhibit.needed_to_run}"
            for exhibit in exhibits
            if exhibit.needed_to_run
        )
        message = (
            "this runs a model on images: --model FILE.py:NAME --weights FILE --data "
            "DIR, where DIR holds the data set, or a DIR that holds MODEL-DATASET-test"
            f".npz, the data set and MODEL-DATASET.safetensors.{needs and ' '}{needs}"
        )
        raise InputError(message)
    return runnable


def _exhibit_of_file(path: Path, options: Options) -> Exhibit:
    output = read_output(path)
    parsed = _STEM.fullmatch(path.stem)
    dataset_name = parsed["data"] if parsed else options.about
    dataset = find_dataset(options.dataset or dataset_name)
    model = path.stem
    if parsed:
        model = parsed["before"] or parsed["after"] or model
    exhibit = Exhibit(dataset, model, output, [path.name], public=_is_public(path))
    _add_stored_perturbed(exhibit, path)
    return exhibit


def _is_public(path: Path) -> bool:
    return path.absolute().parent.name == PUBLIC


def printed_net(model: str) -> str:
    """Return the name of a public net as it is printed; other names stay."""
    for pattern, shown in _PRINTED:
        if parsed := re.fullmatch(pattern, model):
            return parsed.expand(shown)
    return model


def _exhibits_of_folder(folder: Path) -> dict[Key, Exhibit]:
    paths_by_key: dict[Key, dict[Any, Path]] = {}
    for path, parsed in _prediction_files(folder):
        model = parsed["before"] or parsed["after"] or "model"
        key = (parsed["data"], model, _is_public(path))
        kind: Any = parsed["kind"]
        if parsed["score"]:
            kind = _setting_in_name(parsed)
        paths_by_key.setdefault(key, {})["test" if kind == "tbb" else kind] = path
    return {
        key: _exhibit_of_paths(key, paths)
        for key, paths in paths_by_key.items()
        if "test" in paths
    }


def _exhibit_of_paths(key: Key, paths: dict[Any, Path]) -> Exhibit:
    """Read the files of one model on one data set."""
    dataset_name, model, public = key
    clean = read_output(paths["test"])
    exhibit = Exhibit(find_dataset(dataset_name), model, clean, public=public)
    exhibit.files = sorted(path.name for path in paths.values())
    shape = clean.predictions.logits.shape
    for kind, path in paths.items():
        if isinstance(kind, ScoreSetting):
            output = read_output(path, kind.temperature)
            _check_shape(path, output, shape)
            exhibit.stored[kind] = output
        elif kind == "train":
            exhibit.train = read_output(path)
            _check_shape(path, exhibit.train, (None, shape[1]))
    _add_stored_perturbed(exhibit, paths["test"])
    return exhibit


def _check_shape(
    path: Path, output: ModelOutput, expected: tuple[int | None, int]
) -> None:
    n, classes = output.predictions.logits.shape
    if classes != expected[1] or expected[0] not in (None, n):
        rows = "" if expected[0] is None else f"{expected[0]:,} rows of "
        message = (
            f"{path} has {n:,} rows of {classes} classes, the clean predictions of "
            f"the same model have {rows}{expected[1]} classes."
        )
        raise FileError(message)


def _prediction_files(folder: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for path in _tables(folder):
        parsed = _STEM.fullmatch(path.stem)
        if parsed and (path.suffix == ".npz" or not holds_examples(path)):
            yield path, parsed


def _tables(folder: Path) -> Iterator[Path]:
    """Yield tables in the folder and in the folders inside it.

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
        notes.append(
            f"Images or texts, so not read as predictions: {', '.join(examples)}."
        )
    if unnamed:
        notes.append(
            f"Passed over, since MODEL-DATASET-test is how predictions are called: "
            f"{', '.join(unnamed)}."
        )
    return tuple(notes)


def _setting_in_name(parsed: re.Match[str]) -> ScoreSetting:
    return ScoreSetting(parsed["score"], float(parsed["t"]), float(parsed["eps"] or 0))


def _add_stored_perturbed(exhibit: Exhibit, path: Path) -> None:
    """Add the perturbed logits that an NPZ of clean ones holds."""
    clean = exhibit.clean.predictions
    for setting, logits in read_perturbed(path).items():
        try:
            output = ModelOutput(Predictions.from_logits(logits, clean.labels))
        except InputError as error:
            message = f"{path}, perturbed logits: {error}"
            raise FileError(message) from error
        _check_shape(path, output, clean.logits.shape)
        exhibit.stored[ScoreSetting(*setting)] = output


def _add_labels(exhibit: Exhibit, folder: Path | None) -> None:
    """Take missing labels from the data set, in the order of its files."""
    p = exhibit.clean.predictions
    if p.labels is not None:
        return
    if folder is None or exhibit.dataset.locate(folder) is None:
        p.require_labels(f"{exhibit.files or exhibit.model}")
    assert folder is not None
    labels = exhibit.dataset.load(folder).labels
    if labels is None or len(labels) != len(p):
        message = f"{exhibit.files} has {len(p):,} rows, its data set another number."
        raise InputError(message)
    exhibit.clean = exhibit.clean.with_labels(labels)
    for setting, output in exhibit.stored.items():
        if output.predictions.labels is None:
            exhibit.stored[setting] = output.with_labels(labels)


def _is_of_model(exhibit: Exhibit, model_run: ModelRun) -> bool:
    """Return whether stored predictions are of this model and these rows."""
    p = exhibit.clean.predictions
    if p.labels is None or p.from_probabilities:
        return False
    return np.array_equal(p.labels, model_run.labels) and model_run.reproduces(p.logits)


def _sample(exhibit: Exhibit, options: Options) -> None:
    """Keep `--rows` of the stored rows: the same ones that the model is run on."""
    rows = choose_rows(len(exhibit.clean.predictions), options)
    if rows is not None:
        exhibit.clean = exhibit.clean.take(rows)
        exhibit.stored = {
            setting: output.take(rows) for setting, output in exhibit.stored.items()
        }
