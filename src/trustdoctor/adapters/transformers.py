"""Hugging Face models from local folders, and pipelines with a gate.

Nothing is fetched, weights are read from safetensors alone, and no code that comes
with a checkpoint is run. transformers fetches and runs a lot if a configuration asks
for it: `load_folder` refuses such settings by name before transformers reads them, and
tests/adapters/test_hostile_models.py tries them one by one.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.gates import Gate, TargetValue, calibrate, requested_targets
from trustdoctor.predictions import Predictions, plain_name
from trustdoctor.progress import Tell
from trustdoctor.scores import Score, find_score

try:
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as error:
    what = "the transformers adapter"
    raise missing_package(
        what=what, package="transformers and PyTorch", extra="transformers"
    ) from error

from trustdoctor.adapters.errors import refuse_multi_label
from trustdoctor.adapters.torch.model import Batch, as_device, call, run

TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
"""Files that hold a tokenizer's words."""

CONFIGURATION_FILES = (
    *("config.json", "tokenizer_config.json"),
    *("preprocessor_config.json", "processor_config.json"),
)
"""Files that say how a model and its processor are built."""

PYTORCH_IMPLEMENTATIONS = ("eager", "sdpa", "grouped_mm", "batched_mm")
"""Implementations of attention and of experts that come with PyTorch.

transformers fetches any other from the Hub, and runs it.
"""

REFUSED_SETTINGS = frozenset(
    {
        # they make transformers load compiled kernels, or replace parts of its classes
        *("use_kernels", "kernel_config", "fusion_config", "quantization_config"),
        *("compression_config", "distributed_config"),
        # under other names they could set what is refused here
        *("attribute_map", "sub_configs", "sub_configs_defaults", "per_layer_config"),
        *("configuration_files", "_attn_implementation_internal"),
        "_experts_implementation_internal",
        # they name other files, or repositories, to read from
        *("transformers_weights", "model_args", "repo_path", "class_info_file"),
    }
)
"""Settings that fetch, run or open something else."""

KERNEL_MODELS = ("mra", "yoso")
"""Models whose own code asks the Hub for a kernel; without it they answer zeros."""

WEIGHT_INDEX = "model.safetensors.index.json"
"""The file that names the files of weights, if there are several."""


class TrustedPipeline:
    """Wraps a text- or image-classification pipeline; adds a doubt and a decision.

    Make one with `TrustedPipeline.calibrate`, from labelled texts or images, or around
    a gate that you have.

    Parameters
    ----------
    pipe : transformers pipeline
        Of the task text-classification or image-classification.
    gate : Gate
        With a score; calibrated on logits such as `predict` returns.

    Examples
    --------
    ``TrustedPipeline(pipe, gate)("Good film.")`` returns ``{"label": "positive",
    "score": 0.98, "doubt": -3.9, "accepted": True}``. `score` is the pipeline's own
    probability.
    """

    def __init__(self, pipe: Any, gate: Gate) -> None:
        if not hasattr(pipe, "model") or not hasattr(pipe, "postprocess"):
            message = f"expected a transformers pipeline, got {type(pipe).__name__}."
            raise InputError(message)
        if gate.score is None or gate.groups:
            message = "expected a gate with a score and without groups."
            raise InputError(message)
        _require_one_class(pipe.model)
        applied = getattr(pipe, "_postprocess_params", {}).get("function_to_apply")
        if getattr(applied, "name", "") == "SIGMOID":
            refuse_multi_label("a pipeline with function_to_apply='sigmoid'")
        names = class_names(pipe.model)
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:  # pipelines answer by name
            message = (
                f"expected a different name for each class, got {repeated[0]!r} twice. "
                "Change model.config.id2label."
            )
            raise InputError(message)
        trained = gate.classes if isinstance(gate.classes, tuple) else None
        if trained is not None and trained != tuple(map(plain_name, names)):
            message = (
                f"expected a pipeline whose classes are {', '.join(trained)}, in this "
                f"order, as in the gate's calibration, got {', '.join(names)}."
            )
            raise InputError(message)
        if isinstance(gate.classes, int) and gate.classes != len(names):
            message = (
                f"expected a pipeline of {gate.classes} classes, as in the gate's "
                f"calibration, got {len(names)}."
            )
            raise InputError(message)
        self.pipe, self.gate = pipe, gate

    @classmethod
    def calibrate(  # noqa: PLR0913 - options, by keyword only
        cls,
        pipe: Any,
        inputs: Sequence[Any],
        labels: Any,
        *,
        risk: TargetValue = None,
        frr: TargetValue = None,
        trr: TargetValue = None,
        joint: TargetValue = None,
        coverage: TargetValue = None,
        cost: float | None = None,
        target: Mapping[str, TargetValue] | None = None,
        score: str | Score | None = None,
        confidence: float = 0.9,
        batch_size: int = 32,
        **options: Any,
    ) -> "TrustedPipeline":
        """Calibrate a gate on labelled texts or images, and put it behind a pipeline.

        Parameters
        ----------
        pipe : transformers pipeline
        inputs : sequence
            Texts, or images, that the model was not trained on.
        labels : array (n,)
            Their classes: numbers, or the model's names for them.
        risk, frr, trr, joint, coverage, cost, target, score, confidence
            As in `trustdoctor.calibrate`.
        batch_size : int
        options
            For the tokenizer, as when the pipeline is called: `max_length`, ... Give
            the pipeline the same ones later.
        """
        targets = requested_targets(
            target,
            risk=risk,
            frr=frr,
            trr=trr,
            joint=joint,
            coverage=coverage,
            cost=cost,
        )
        # An accept-all gate checks the pipeline before the model runs on every row.
        unscreened = cls(pipe, Gate(math.inf, find_score("alpha"), state="accept-all"))
        p = unscreened.predictions(
            inputs, labels=labels, batch_size=batch_size, **options
        )
        gate = calibrate(p, target=targets, score=score, confidence=confidence)
        return cls(pipe, gate)

    def __repr__(self) -> str:
        """Show the task and the gate."""
        return (
            f"TrustedPipeline({getattr(self.pipe, 'task', 'pipeline')}, {self.gate!r})"
        )

    def predictions(
        self, inputs: Sequence[Any], *, labels: Any = None, **options: Any
    ) -> Predictions:
        """Return the logits of texts or images, as the pipeline's model gives them."""
        if "top_k" in options or "function_to_apply" in options:
            message = (
                "the gate needs the logits of all classes: leave top_k and "
                "function_to_apply out."
            )
            raise InputError(message)
        rows = list(inputs)
        if not rows:
            message = "expected at least one row, got none."
            raise InputError(message)
        if self.pipe.tokenizer is not None:
            # What the pipeline was made with goes first: its answers are those judged.
            pipeline_options = getattr(self.pipe, "_preprocess_params", {})
            longest = _max_tokens(self.pipe.tokenizer, self.pipe.model)
            for name, value in (("truncation", True), ("max_length", longest)):
                if name not in pipeline_options:
                    options.setdefault(name, value)
        answers = self.pipe(rows, top_k=None, function_to_apply="none", **options)
        names = class_names(self.pipe.model)
        logits = np.full((len(rows), len(names)), -np.inf)
        for i, answer in enumerate(answers):
            for class_answer in answer:
                logits[i, names.index(class_answer["label"])] = class_answer["score"]
        return Predictions.from_logits(logits, labels, class_names=names)

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """Answer one input, or a list of them."""
        single = isinstance(inputs, (str, dict)) or not isinstance(inputs, Iterable)
        rows = [inputs] if single else list(inputs)
        if not rows:
            return []
        p = self.predictions(rows, **options)
        screened = self.gate.screen(p)
        names = class_names(self.pipe.model)
        probs = special.softmax(p.logits, axis=1).max(1)
        decisions = [
            {
                "label": names[k],
                "score": float(probs[i]),
                "doubt": float(screened.doubts[i]),
                "accepted": bool(screened.accepted[i]),
            }
            for i, k in enumerate(p.predicted)
        ]
        return decisions[0] if single else decisions


def predict(  # noqa: PLR0913 - options, by keyword only
    model: Any,
    data: Sequence[Any],
    *,
    processor: Any = None,
    labels: Any = None,
    batch_size: int = 32,
    max_length: int | None = None,
    device: Any = None,
    quiet: bool = False,
    progress: Tell | None = None,
) -> Predictions:
    """Run a classifier over texts or images and return its logits.

    Parameters
    ----------
    model : path or model
        A local folder in Hugging Face layout, or a model with its `processor`.
    data : sequence
        Texts, or images (PIL, or arrays).
    processor : optional
        The tokenizer or image processor, if `model` is not a folder.
    labels : integer array (n,), optional
    batch_size : int
    max_length : int, optional
        The largest number of tokens per text; by default the tokenizer's.
    device : optional
        The device of the model, which is not moved. A folder's model is loaded there.
    quiet, progress
        As in `Doctor` and `sweep`.
    """
    if isinstance(model, (str, Path)):
        model, processor = load_folder(model, device=device)
    if not len(data):
        message = "expected at least one row, got none."
        raise InputError(message)
    texts = isinstance(data[0], str)
    _require_one_class(model)
    max_tokens = _check_rows(processor, model, texts, batch_size, max_length)
    order = _order_by_length(data) if texts else np.arange(len(data))
    batch_rows = [
        order[start : start + batch_size] for start in range(0, len(order), batch_size)
    ]

    def logits_of(_i: int, batch: Batch, batch_device: Any) -> Any:
        with torch.inference_mode():
            return call(model, batch.to(batch_device), None).float().cpu().numpy()

    batches = run(
        model,
        (
            dict(_processed(processor, [data[i] for i in rows], max_tokens))
            for rows in batch_rows
        ),
        logits_of,
        device=device,
        total=len(batch_rows),
        quiet=quiet,
        progress=progress,
    )
    logits = np.concatenate(batches)[np.argsort(order)]
    return Predictions.from_logits(logits, labels)


def _check_rows(
    processor: Any, model: Any, texts: Any, batch_size: int, max_length: int | None
) -> int:
    """Return the largest number of tokens (0 for images), or refuse the options."""
    if processor is None:
        message = "expected processor= (a tokenizer or image processor) with the model."
        raise InputError(message)
    for name, value in (("batch_size", batch_size), ("max_length", max_length)):
        if value is not None and (type(value) is not int or value < 1):
            message = f"expected {name} of 1 or more, got {value!r}."
            raise InputError(message)
    if texts != isinstance(processor, transformers.PreTrainedTokenizerBase):
        takes, got = ("images", "texts") if texts else ("texts", "images")
        message = f"the model takes {takes}, the rows are {got}. Name another column."
        raise InputError(message)
    max_tokens = _max_tokens(processor, model) if texts else 0
    if max_length is not None and texts and max_length > max_tokens:
        message = f"the model takes at most {max_tokens} tokens, got {max_length}."
        raise InputError(message)
    return min(max_tokens, max_length or max_tokens)


def load_folder(folder: str | Path, *, device: Any = None) -> tuple[Any, Any]:
    """Load a classifier and its tokenizer or image processor from a local folder."""
    device = as_device("cpu" if device is None else device)
    path = Path(folder)
    if not (path / "config.json").is_file():
        message = f"expected a model's folder with a config.json, got {path}."
        raise FileError(message)
    if not any(path.glob("*.safetensors")):
        message = (
            f"{path} has no safetensors. Other weights can run code as they are read; "
            "convert them: model.save_pretrained(folder)."
        )
        raise FileError(message)
    try:
        with _quiet():
            model, processor = _load(path)
    except FileError:
        raise
    except BaseException as error:  # each of the libraries below has its own
        if not _is_library_error(error):
            raise
        message = f"cannot load the model in {path}: {_first_line(error)}"
        raise FileError(message) from error
    _require_one_class(model)
    return model.to(device).eval(), processor


def _require_one_class(model: Any) -> None:
    """Refuse a model that does not choose one class of several for each row."""
    config = getattr(model, "config", None)
    if getattr(config, "problem_type", None) == "multi_label_classification":
        refuse_multi_label("problem_type 'multi_label_classification'")
    if str(getattr(config, "function_to_apply", "")).lower() == "sigmoid":
        refuse_multi_label("function_to_apply 'sigmoid'")
    regression = getattr(config, "problem_type", None) == "regression"
    if regression or getattr(config, "num_labels", None) == 1:
        message = (
            "expected a classifier of two classes or more, got a model that answers "
            "with " + ("a regression" if regression else "one number") + ". Train it "
            "with one logit for each class."
        )
        raise InputError(message)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the library report by its exceptions alone."""
    log = transformers.utils.logging
    shown, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shown:
            log.enable_progress_bar()


def _is_library_error(error: BaseException) -> bool:
    """Tell an error of a library from an interrupt or an exit."""
    # tokenizers and safetensors are written in Rust, whose panics are no `Exception`.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "ignore_mismatched_sizes" in line:  # advice that would leave random weights
        return "its weights are of other sizes than config.json says."
    return line


def _load(path: Path) -> tuple[Any, Any]:
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    _check_files(path)
    _check_settings(path)
    config = transformers.AutoConfig.from_pretrained(path, **options)
    model_class = _model_class(config)
    _check_config(path, config)
    model, loading = model_class.from_pretrained(
        path,
        config=config,
        attn_implementation=None,  # PyTorch's own, whatever the configuration asks for
        use_safetensors=True,
        dtype=torch.float32,
        output_loading_info=True,
        **options,
    )
    is_text = model_class is transformers.AutoModelForSequenceClassification
    _check_complete(path, loading["missing_keys"], is_text=is_text)
    processor_class: Any = transformers.AutoImageProcessor
    if is_text:
        processor_class = transformers.AutoTokenizer
    return model, processor_class.from_pretrained(path, **options)


def _check_files(path: Path) -> None:
    """Refuse pipes, weights that would be unpickled, and adapters left out silently."""
    for file in sorted(path.iterdir()):
        if file.exists() and not file.is_file() and not file.is_dir():
            message = f"expected files in {path}, got a pipe or a device, {file.name}."
            raise FileError(message)
    if (path / "adapter_config.json").exists():
        message = (
            f"{path} holds an adapter (adapter_config.json), which names its own base "
            "model. Merge them: model.merge_and_unload().save_pretrained(folder)."
        )
        raise FileError(message)
    if (path / WEIGHT_INDEX).is_file():
        _check_index(path / WEIGHT_INDEX)


def _check_settings(path: Path) -> None:
    """Refuse settings that make transformers fetch, run or open something else."""
    for file in filter(Path.is_file, (path / name for name in CONFIGURATION_FILES)):
        content = json.loads(envelope.read_bounded(file, "configuration"))
        if isinstance(content, dict) and content.get("model_type") in KERNEL_MODELS:
            message = (
                f"{file} asks for the model {content['model_type']}, whose attention "
                "is a compiled kernel from the Hub, and nothing is fetched. Use "
                "another model."
            )
            raise FileError(message)
        for name, value in _settings(content):
            if not _is_harmless(name, value):
                message = (
                    f"{file} sets {name} to {envelope.shown(value)}, by which "
                    "transformers would fetch, run or open something else. Remove "
                    "that setting, or save the model without it."
                )
                raise FileError(message)


def _settings(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration and of those within it."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield name, value
            if name not in ("label2id", "id2label"):  # a class may have any name
                yield from _settings(value)
    elif isinstance(content, list):
        for value in content:
            yield from _settings(value)


def _is_harmless(name: str, value: Any) -> bool:
    """Tell whether a setting names no code and no other files."""
    if name.endswith(("attn_implementation", "experts_implementation")):
        return value is None or value in PYTORCH_IMPLEMENTATIONS
    if name == "architecture":  # timm fetches names with a hub's prefix, "hf-hub:..."
        return not (isinstance(value, str) and set(value) & set(":/\\"))
    return name not in REFUSED_SETTINGS or not value


def _check_index(file: Path) -> None:
    """Refuse files that are not safetensors of the folder: others are unpickled."""
    content = json.loads(envelope.read_bounded(file, "index of weights"))
    for name in set(content["weight_map"].values()):
        if not name.endswith(".safetensors") or Path(name).name != name:
            message = (
                f"expected names of safetensors beside it in {file}, got "
                f"{envelope.shown(name)}. Save the model anew: "
                "model.save_pretrained(folder)."
            )
            raise FileError(message)


def _check_config(path: Path, config: Any) -> None:
    """Refuse classes without names, and more layers than there are weights."""
    names = config.id2label
    if sorted(names) != list(range(len(names))):
        message = f"expected the names of classes 0, 1, ... in {path}/config.json."
        raise FileError(message)
    # A configuration of a billion layers would fill the memory before any weight is
    # missed.
    layers = max(_layer_counts(config.to_dict()), default=0)
    weights = 0
    for file in filter(Path.is_file, path.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            weights += len(opened.keys())
    if layers > weights:
        message = f"{path}/config.json asks for {layers:,} layers, more than there are."
        raise FileError(message)


def _layer_counts(fields: dict[Any, Any]) -> Iterator[int]:
    """Yield the numbers of layers that a configuration asks for."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _layer_counts(value)
        elif str(name).endswith(("layers", "layer", "depths", "depth")):
            numbers = value if isinstance(value, list) else [value]
            yield sum(number for number in numbers if type(number) is int)


def _check_complete(path: Path, missing_keys: Any, *, is_text: bool) -> None:
    """Refuse a folder without some weights, or without a tokenizer or processor."""
    # transformers would go on with random weights, or with an empty vocabulary.
    if missing_keys:
        first = sorted(missing_keys)[0]
        message = f"the weights in {path} lack {first}: is it a classifier's folder?"
        raise FileError(message)
    names = TOKENIZERS if is_text else ("preprocessor_config.json",)
    if not any(next(path.glob(name), None) for name in names):
        message = f"{path} has none of {', '.join(names)}. Save it with the model."
        raise FileError(message)


def _model_class(config: Any) -> Any:
    """Return the class of classifier that a configuration names."""
    names = " ".join(config.architectures or ())
    if "ImageClassification" in names:
        return transformers.AutoModelForImageClassification
    if "SequenceClassification" in names:
        return transformers.AutoModelForSequenceClassification
    message = f"expected a text or image classifier, got {names or 'no architecture'}."
    raise ValueError(message)


def _processed(processor: Any, rows: list[Any], max_tokens: int) -> Any:
    options: dict[str, Any] = {}
    if max_tokens:
        options = {"padding": True, "truncation": True, "max_length": max_tokens}
    try:
        return processor(rows, return_tensors="pt", **options)
    except BaseException as error:
        if not _is_library_error(error):
            raise
        message = f"the model's processor fails on these rows: {_first_line(error)}"
        raise InputError(message) from error


def _max_tokens(tokenizer: Any, model: Any) -> int:
    """Return the largest number of tokens that the model takes."""
    # A tokenizer that was saved without a limit says 1e30.
    positions = getattr(model.config, "max_position_embeddings", None) or 4096
    limit = tokenizer.model_max_length
    if not isinstance(limit, (int, float)) or min(limit, positions) < 1:
        message = f"expected a tokenizer that takes 1 token or more, got {limit!r}."
        raise InputError(message)
    return int(min(limit, positions))


def _order_by_length(texts: Sequence[str]) -> Any:
    """Return the order of lengths: rows of one batch then need little padding."""
    return np.argsort([len(text) for text in texts], kind="stable")


def class_names(model: Any) -> list[str]:
    """Return the model's names of its classes, in order."""
    names = model.config.id2label
    return [names[i] for i in range(len(names))]


def predictor(
    model: Any, *, max_length: int | None = None, device: Any = None
) -> Callable[[Any], Any]:
    """Return a function of texts or images to logits, for `SecondOpinion`.

    Parameters
    ----------
    model : path, or (model, processor)
    """
    loaded, processor = (
        model if isinstance(model, tuple) else load_folder(model, device=device)
    )

    def answer(data: Any) -> Any:
        return predict(
            loaded,
            data,
            processor=processor,
            max_length=max_length,
            device=device,
            quiet=True,
        ).logits

    return answer
