"""Scores within documents, such as a gate's file.

A formula is written by its name and temperature. A fitted score is written with its
arrays up to `EMBEDDED_BYTES`; a larger one goes into a file beside the document, which
names it with its digest.

    gate = Gate(threshold, score)
    file = save_beside(gate.score, path)              # None for a small score
    document = score_document(gate.score, file=file)  # a part of the gate's document
    ...
    score = read_score(document, folder=path.parent)
"""

import base64
import os
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from trustdoctor.envelope import Document, shown
from trustdoctor.errors import FileError, TrustDoctorError
from trustdoctor.scores.contract import FittedScore, Score
from trustdoctor.scores.registry import build_score, find_score, load_score

EMBEDDED_BYTES = 1_000_000
"""Larger arrays go into a file beside the document."""

MAX_NAME_BYTES = 255
"""Of the name of a file, on the file systems in use."""

ArrayType = Literal[
    "<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1"
]


class ArrayDocument(Document, frozen=True):
    """An array: its type as numpy writes it, its shape, and its bytes in base64."""

    type: ArrayType
    shape: list[Annotated[int, Meta(ge=0)]]
    base64: str


class FittedDocument(Document, frozen=True, omit_defaults=True):
    """The state of a fitted score, or the name of the file that holds it."""

    digest: str
    plain: dict[str, Any] | None = None
    arrays: dict[str, ArrayDocument] | None = None
    file: str | None = None


class ScoreDocument(Document, frozen=True):
    """A score by its name in the registry; `fitted` if it is a fitted one."""

    name: str
    temperature: Annotated[float, Meta(gt=0)]
    fitted: FittedDocument | None = None


def score_document(score: Score, *, file: str | None = None) -> ScoreDocument:
    """Return what a document says of a score; `file` names the file that holds it.

    Examples
    --------
    >>> score_document(find_score("alpha", temperature=2.0))
    ScoreDocument(name='alpha', temperature=2.0, fitted=None)
    """
    if not isinstance(score, FittedScore):
        return ScoreDocument(name=score.name, temperature=score.temperature)
    fitted = FittedDocument(digest=score.digest, file=file)
    if file is None:
        arrays, plain = score.to_state()
        fitted = FittedDocument(
            digest=score.digest,
            plain=plain,
            arrays={name: _array_document(array) for name, array in arrays.items()},
        )
    return ScoreDocument(name=score.name, temperature=1.0, fitted=fitted)


def read_score(document: ScoreDocument, *, folder: Path | None) -> Score:
    """Return the score that a document describes.

    Files of fitted scores are looked for in `folder`; with None, none is opened.

    Examples
    --------
    >>> read_score(ScoreDocument(name="pnorm:p=4", temperature=1.0), folder=None).name
    'pnorm:p=4'
    """
    if document.fitted is None:
        return find_score(document.name, temperature=document.temperature)
    fitted = _read_fitted(document.name, document.fitted, folder)
    return find_score(fitted, temperature=document.temperature)


def save_beside(score: Score | None, path: str | Path) -> str | None:
    """Write a large fitted score beside a document; return the name of its file.

    None for a score that stands in the document itself.
    """
    if not isinstance(score, FittedScore) or score.nbytes <= EMBEDDED_BYTES:
        return None
    # Named by the digest: another document that is there keeps its own score.
    suffix = f".{score.name}-{score.digest[:12]}.safetensors"
    room = MAX_NAME_BYTES - len(os.fsencode(suffix))
    stem = os.fsencode(Path(path).stem)[:room].decode("utf-8", "ignore")
    score.save(Path(path).with_name(stem + suffix))
    return stem + suffix


def _read_fitted(
    name: str, document: FittedDocument, folder: Path | None
) -> FittedScore:
    if document.file is not None:
        if document.plain is not None or document.arrays is not None:
            message = "fitted: expected a file or a state, got both."
            raise FileError(message)
        score = load_score(_path_beside(folder, document.file))
    elif document.plain is None or document.arrays is None:
        message = "fitted: expected plain and arrays, or a file."
        raise FileError(message)
    else:
        arrays = {n: _read_array(n, a) for n, a in document.arrays.items()}
        try:
            score = build_score(name, arrays, document.plain)
        except TrustDoctorError:
            raise
        except Exception as error:
            # numpy's own errors, for arrays of shapes that no such score has.
            message = f"fitted: not a valid {name} score: {error}."
            raise FileError(message) from error
    if score.name != name:
        message = f"the document names {name}, and holds a {score.name} score."
        raise FileError(message)
    # The digest covers arrays and plain values: a file beside the document may have
    # been replaced by that of another fit.
    if score.digest != document.digest:
        message = "its fitted score was changed: the digest is another. Save it again."
        raise FileError(message)
    return score


def _path_beside(folder: Path | None, name: str) -> Path:
    if folder is None:
        message = (
            "expected a document that holds its fitted score, got one that names a "
            "file. Write it by to_json()."
        )
        raise FileError(message)
    if Path(name).name != name or "\0" in name:
        message = f"expected the name of a file beside the document, got {shown(name)}."
        raise FileError(message)
    return folder / name


def _array_document(array: NDArray[Any]) -> ArrayDocument:
    raw = np.ascontiguousarray(array).tobytes()
    return ArrayDocument(
        type=cast("ArrayType", array.dtype.str),
        shape=list(array.shape),
        base64=base64.b64encode(raw).decode("ascii"),
    )


def _read_array(name: str, document: ArrayDocument) -> NDArray[Any]:
    dtype = np.dtype(document.type)
    try:
        raw = base64.b64decode(document.base64, validate=True)
        array = np.frombuffer(raw, dtype).reshape(document.shape)
    except ValueError as error:
        message = (
            f"fitted.arrays.{shown(name)}: expected base64 of an array of shape "
            f"{shown(document.shape)}: {error}."
        )
        raise FileError(message) from error
    return array.astype(dtype.newbyteorder("="))
