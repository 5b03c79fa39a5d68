"""From a path to predictions: which files it stands for, and reading them.

NPZ: arrays `logits` or `probs`, and `labels`. Tables: columns `logit_0..` or `prob_0..`
(or `prob_cat..`, or one list column `logits` or `probs`), and `label`. The original
DOCTOR layout, columns `0..C-1, label, true_label`, where `label` is the prediction, is
read as probabilities. Other names are given by `Columns`.
"""

import glob
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.files.columns import Columns
from trustdoctor.files.formats import (
    FORMATS,
    find_format,
    sniff,
    spool_stdin,
    suffix_of,
)
from trustdoctor.files.frames import with_binary_names
from trustdoctor.files.layout import find_layout
from trustdoctor.files.source import Source
from trustdoctor.predictions import Predictions


def find_source(path: str | Path, columns: Columns | None = None) -> Source:
    """Find the files behind a path: a file, a glob, or a folder and what is in it.

    - stands for standard input.
    """
    columns = columns or Columns()
    if str(path) == "-":
        return _complete(Source((spool_stdin(),), columns))
    return _complete(_find_files(path, columns))


def _complete(source: Source) -> Source:
    """Return a source whose columns also say what only the files can tell."""
    columns, kind = source.columns, source.format.name
    if columns.choices is not None and kind != "JSON lines":
        message = (
            f"--choices reads a language model's responses as .jsonl, one per line, "
            f"got {source.files[0].name!r}."
        )
        raise FileError(message)
    if kind in ("CSV", "TSV"):
        with source.file_errors():
            comma = sniff(source.files[0]).separator != ","
        columns = replace(columns, comma=comma)
    if columns.positive is not None and columns.class_names is None:
        layout = source.layout
        names = [] if layout.label is None else [layout.label]
        table = source.collect(source.scan().select(names).unique())
        try:
            columns = with_binary_names(columns, layout, table)
        except InputError as error:
            message = f"{source.files[0]}: {error}"
            raise FileError(message) from error
    source = Source(source.files, columns, source.root, source.step)
    if columns.truth is not None:
        source.check_truth()
    return source


def _find_files(path: str | Path, columns: Columns) -> Source:
    named = Path(path)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        message = "expected a file name in UTF-8, got another. Rename the file."
        raise FileError(message) from error
    try:
        if named.is_dir():
            return _folder_source(named, columns)
        if named.is_file():
            find_format(named)
            return Source((named,), columns)
        if glob.has_magic(str(path)):
            return _glob_source(str(path), columns)
    except OSError as error:  # no access to the folder, or too long a name
        message = f"cannot look at {path}: {(error.strerror or '').lower()}."
        raise FileError(message) from error
    find_format(named)
    message = f"there is no file {path}. Check the path."
    raise FileError(message)


def _glob_source(pattern: str, columns: Columns) -> Source:
    # Path.glob takes no absolute pattern.
    paths = sorted(map(Path, glob.glob(pattern, recursive=True)))  # noqa: PTH207
    files = [path for path in paths if path.is_file()]
    if any(suffix_of(file) == ".npy" for file in files):
        message = "NPY files are read together: name their folder, and not a pattern."
        raise FileError(message)
    if not files:
        message = f"no file matches {pattern}. Check the pattern."
        raise FileError(message)
    return _source_of_one_kind(files, columns, None)


def _folder_source(folder: Path, columns: Columns) -> Source:
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if suffix_of(file) in FORMATS
        and not any(p.startswith((".", "_")) for p in file.relative_to(folder).parts)
        and file.is_file()
    ]
    if not files:
        message = f"the folder {folder} holds no file in {', '.join(FORMATS)}."
        raise FileError(message)
    if {suffix_of(file) for file in files} == {".npy"}:
        return _unpacked_npz_source(folder, files, columns)
    return _source_of_one_kind(files, columns, folder)


def _unpacked_npz_source(folder: Path, files: list[Path], columns: Columns) -> Source:
    """Take a folder of NPY files for an NPZ file that was unpacked."""
    names = [file.stem for file in files if file.parent == folder]
    try:
        values = find_layout(names, columns).values[0]
    except InputError as error:
        message = f"{folder}: {error}"
        raise FileError(message) from error
    return Source((folder / f"{values}.npy",), columns, folder)


def _source_of_one_kind(
    files: list[Path], columns: Columns, root: Path | None
) -> Source:
    formats = {find_format(file).name: suffix_of(file) for file in files}
    if len(formats) > 1:
        kinds = " and ".join(sorted(formats.values()))
        message = (
            f"expected files of one kind, got {kinds}. "
            "Name those of one kind with a pattern, as 'folder/*.parquet'."
        )
        raise FileError(message)
    return Source(tuple(files), columns, root)


def read(path: str | Path, **columns: Any) -> Predictions:
    r"""Read predictions from a file, a folder of files, or a pattern.

    Parameters
    ----------
    path : str or Path
        Its suffix says the format; - stands for standard input.
    columns
        The names of columns; see `trustdoctor.files.Columns`. The command line has an
        option of the same name for each.

        logits, probs : the array, list column or column prefix that holds them, or the
        columns themselves; by default `logits` / `logit_` or `probs` / `prob_`.
        labels : the true labels, by default `label`. features, groups, ids : columns.
        confidence or doubt, with predicted or correct : answers without logits.
        positive : the label that a binary model's one column speaks for.
        predicted : what the system answers, blank if it gave no answer; or cutoff : for
        two classes, from which probability of the second it answers that. one_vs_rest :
        whether probabilities are of one class against the rest.
        first_class : the number of the first class. percent : whether values are
        percentages. class_names : one per class, in the order of the columns.
        last_line : "keep" takes a CSV file whose last line has no line end, or too few
        values, as it is; by default it is refused, for it may be cut short.
        choices, truth : for a language model's responses. need_labels : False takes
        labels that are not classes as missing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text("logit_0,logit_1,label\n2.0,0.5,0\n0.1,0.3,0\n")
    ...     read(file)
    Predictions(2 rows, 2 classes, logits, accuracy 50.00%)
    """
    if not isinstance(path, (str, Path)):
        message = (
            f"expected the path of a file, got {type(path).__name__}. For tables in "
            "memory use Predictions.from_frame."
        )
        raise InputError(message)
    options = {field.name for field in fields(Columns)}
    options -= {"comma", "texts", "names_file"}  # set by the library and its commands
    unknown = sorted(set(columns) - options)
    if unknown:
        message = (
            f"expected options out of {', '.join(sorted(options))}, got {unknown[0]!r}."
        )
        raise InputError(message)
    return find_source(path, Columns(**columns)).read()


def read_class_names(path: str | Path) -> list[str]:
    """Return a text file's lines, one per class in the order of the columns."""
    return envelope.read_bounded(path, "list of class names").splitlines()
