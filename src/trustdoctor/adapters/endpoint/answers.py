"""The answers of an endpoint in a file, one per line, and the number of calls made.

A line has the form of OpenAI's batches: the digest of the question as custom_id, and
the response as it came. A writer holds a lock, adds the line in one go and waits for
the disk. So several processes can use one file, and a killed one leaves at most a last
line without its end: it is ignored, and the next writer puts its own there.
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

MAX_LINE_BYTES = 1 << 24

_LINE = re.compile(rb'\{"custom_id": ?"([0-9a-f]{32})", ?"response": ?\{')
_LINE_START = b'{"custom_id":'
_CALL = b"."


class AnswerFile:
    """Answers by the digests of their questions.

    It remembers where each line begins, and reads only the lines that were added since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self._offsets: dict[str, int] = {}
        self._end, self._lines = 0, 0

    def find(self, digests: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Yield the responses in the file, with their digests."""
        with self._locked() as target:
            self._read_new_lines(target)
        with target.open("rb") as file:
            for digest in digests:
                if digest in self._offsets:
                    file.seek(self._offsets[digest])
                    yield digest, self._response(file.readline(MAX_LINE_BYTES), digest)

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
        """Save a response, unless another process has saved one for the question."""
        body = {"status_code": 200, "body": _without_surrogates(response)}
        content = {"custom_id": digest, "response": body}
        line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        with self._locked() as target:
            self._read_new_lines(target)
            if digest not in self._offsets:
                _append(target, self._end, line)
                self._read_new_lines(target)

    def count_call(self, max_calls: int | None) -> bool:
        """Count a call before it is made; tell whether it may be made."""
        with self._locked() as target:
            self._read_new_lines(target)
            call_file = _call_file(target)
            if call_file.is_symlink():  # bytes would go to whatever it leads to
                message = f"expected {call_file} to be a file, got a link. Remove it."
                raise FileError(message)
            size = call_file.stat().st_size if call_file.exists() else 0
            calls = max(size, self._lines)  # if the file of calls was lost
            if max_calls is not None and calls >= max_calls:
                return False
            with call_file.open("ab", buffering=0) as file:
                file.write(_CALL * (calls + 1 - size))
            return True

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        """Yield the file while no other process uses it, and make it if need be."""
        require_no_link(self.path, "the answers")
        with locked(self.path) as target:
            try:
                if not target.exists():
                    _create(target)
                yield target
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                message = (
                    f"cannot write {target}: {reason}. The answers in it are kept; "
                    "make room or choose another path, and run again."
                )
                raise OutputError(message) from error

    def _read_new_lines(self, target: Path) -> None:
        with target.open("rb") as file:
            state = os.fstat(file.fileno())
            identity = (state.st_dev, state.st_ino)
            # Another file under this name, or one that was cut: start anew.
            if identity != self._identity or state.st_size < self._end:
                self._identity = identity
                self._forget()
            file.seek(self._end)
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n") and _may_be_torn(line):
                    return
                self._add_line(line)

    def _add_line(self, line: bytes) -> None:
        match = _LINE.match(line)
        if line.strip() and (match is None or not line.endswith(b"\n")):
            message = (
                f"expected answers of an endpoint in {self.path}, got something else "
                f"in line {self._lines + 1}. Name another file, or remove that line."
            )
            raise FileError(message)
        if match is not None:
            self._offsets.setdefault(match[1].decode(), self._end)
        self._lines += 1
        self._end += len(line)


def _may_be_torn(line: bytes) -> bool:
    """Tell whether this may be a line that was never written to its end."""
    return len(line) < MAX_LINE_BYTES and line.startswith(_LINE_START[: len(line)])


def _without_surrogates(content: Any) -> Any:
    """Return JSON with ? for unpaired surrogates, which no UTF-8 file can hold."""
    # A token may end within a character; servers then send half of it.
    return json.loads(
        json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    )


def _call_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.calls")


def _create(target: Path) -> None:
    """Make an empty file, whose calls are counted from 0."""
    call_file = _call_file(target)
    if call_file.exists():
        if call_file.read_bytes().strip(_CALL):
            message = (
                f"expected {call_file} to count calls, got something else. Name "
                "another file for the answers."
            )
            raise FileError(message)
        call_file.unlink()
    target.touch()


def _append(target: Path, offset: int, line: bytes) -> None:
    """Write a line at an offset, over the torn one that may be there."""
    with target.open("r+b", buffering=0) as file:
        file.truncate(offset)
        file.seek(offset)
        try:
            unwritten = memoryview(line)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(offset)
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
