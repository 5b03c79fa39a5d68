"""The answers of an endpoint in a file, one per line, and how many calls were made.

A line is what a batch of OpenAI has: the digest of the question as custom_id, and the
response as it came. Whoever writes holds a lock, adds the line in one go and waits for
the disk. So several processes can use one file, and the most that a killed one leaves
is a last line without its end: it is ignored, and the next writer puts its own there.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trustdoctor.atomic import locked, require_no_link
from trustdoctor.errors import FileError, InputError, OutputError, RowError

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint

LONGEST = 1 << 24
"""Bytes of a line, at most."""

_LINE = re.compile(rb'\{"custom_id": ?"([0-9a-f]{32})", ?"response": ?\{')
_BEGINNING = b'{"custom_id":'
_CALL = b"."


class AnswerFile:
    """Answers by the digests of their questions.

    It remembers where each line begins, and looks only at what was added since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._which: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self._places: dict[str, int] = {}
        self._end, self._lines = 0, 0

    def find(self, digests: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Yield the responses that are kept, with their digests."""
        with self._locked() as target:
            self._look(target)
        with target.open("rb") as file:
            for digest in digests:
                if digest in self._places:
                    file.seek(self._places[digest])
                    yield digest, self._response(file.readline(LONGEST), digest)

    def _response(self, line: bytes, digest: str) -> Any:
        try:
            content = json.loads(line)
            if content["custom_id"] == digest:
                return content["response"]["body"]
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        message = (
            f"the answer {digest} in {self.path} is not as it was written. Remove its "
            "line, and run again."
        )
        raise FileError(message)

    def add(self, digest: str, response: Any) -> None:
        """Keep a response, unless another process has kept one for the question."""
        body = {"status_code": 200, "body": _whole_characters(response)}
        whole = {"custom_id": digest, "response": body}
        line = json.dumps(whole, separators=(",", ":")).encode() + b"\n"
        with self._locked() as target:
            self._look(target)
            if digest not in self._places:
                _append(target, self._end, line)
                self._look(target)

    def count_call(self, most: int | None) -> bool:
        """Count a call before it is made; tell whether it may be made."""
        with self._locked() as target:
            self._look(target)
            counted = _beside(target)
            if counted.is_symlink():  # it would grow whatever it leads to
                message = f"expected {counted} to be a file, got a link. Remove it."
                raise FileError(message)
            size = counted.stat().st_size if counted.exists() else 0
            made = max(size, self._lines)  # where the count was lost
            if most is not None and made >= most:
                return False
            with counted.open("ab", buffering=0) as file:
                file.write(_CALL * (made + 1 - size))
            return True

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        """Yield the file while no other process uses it, and make it if need be."""
        require_no_link(self.path, "the answers")
        with locked(self.path) as target:
            try:
                if not target.exists():
                    _begin(target)
                yield target
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                message = (
                    f"cannot write {target}: {reason}. The answers in it are kept; "
                    "make room or choose another path, and run again."
                )
                raise OutputError(message) from error

    def _look(self, target: Path) -> None:
        """Note the lines that were added since the last look."""
        with target.open("rb") as file:
            state = os.fstat(file.fileno())
            which = (state.st_dev, state.st_ino)
            if which != self._which or state.st_size < self._end:
                self._which = which
                self._forget()
            file.seek(self._end)
            while line := file.readline(LONGEST):
                if not line.endswith(b"\n") and self._is_torn(line):
                    return
                self._note(line)

    def _is_torn(self, line: bytes) -> bool:
        """Tell whether this may be a line that was never written to its end."""
        start = _BEGINNING[: len(line)]
        return len(line) < LONGEST and line.startswith(start)

    def _note(self, line: bytes) -> None:
        known = _LINE.match(line)
        if line.strip() and (known is None or not line.endswith(b"\n")):
            message = (
                f"expected answers of an endpoint in {self.path}, got something else "
                f"in line {self._lines + 1}. Name another file, or remove that line."
            )
            raise FileError(message)
        if known is not None:
            self._places.setdefault(known[1].decode(), self._end)
        self._lines += 1
        self._end += len(line)


def _whole_characters(content: Any) -> Any:
    """Return JSON with ? for half a character, as a token may be; no file holds one."""
    return json.loads(
        json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    )


def _beside(target: Path) -> Path:
    return target.with_name(f"{target.name}.calls")


def _begin(target: Path) -> None:
    """Make an empty file, whose calls are counted from 0."""
    counted = _beside(target)
    if counted.exists():
        if counted.read_bytes().strip(_CALL):
            message = (
                f"expected {counted} to count calls, got something else. Name another "
                "file for the answers."
            )
            raise FileError(message)
        counted.unlink()
    target.touch()


def _append(target: Path, at: int, line: bytes) -> None:
    """Write a line at a place, over what is left there of another."""
    with target.open("r+b", buffering=0) as file:
        file.truncate(at)
        file.seek(at)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(at)
            raise


def choice_shares(endpoint: "Endpoint", completion: Any, row: int) -> list[float]:
    """Return the probabilities of the choices in a completion, divided by their sum.

    They are equal if the model said nothing, or nothing that begins a choice.
    """
    from trustdoctor.files import choice_probs, first_tokens

    count = len(endpoint.choices)
    try:
        first_tokens(row, completion)
    except RowError as error:
        if _is_silent(completion):
            return [1 / count] * count
        message = (
            f"{endpoint.url} answered row {row} without log-probabilities of the first "
            "token (choices[0].logprobs.content[0].top_logprobs) that can be used, "
            "though asked for them. Use a server and a model that give them."
        )
        raise InputError(message) from error
    try:
        probs = choice_probs(row, completion, endpoint.choices)
    except RowError as error:
        message = f"{endpoint.url} answered row {row} with odd numbers: {error}"
        raise InputError(message) from error
    total = sum(probs)
    return [prob / total for prob in probs] if total > 0 else [1 / count] * count


def _is_silent(completion: Any) -> bool:
    """Tell whether a model ended its answer, or a filter did, before any text."""
    try:
        first = completion["choices"][0]
        text, reason = first["message"]["content"], first["finish_reason"]
    except (KeyError, IndexError, TypeError):
        return False
    return not text and reason in ("stop", "content_filter")
