"""Writing files whole or not at all, and one process at a time."""

import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trustdoctor.errors import OutputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LONGEST = 20  # bytes of a suffix that says a format


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, moved there if the block succeeds.

    A link of that name is replaced, and what it leads to stays as it is. Whatever goes
    wrong in between (a full disk, an exception), the old file stays as it was and no
    temporary file is left. What a killed process left is removed by the next one that
    writes there.
    """
    target = require_writable(path)
    own = _hidden(target, platform.node())
    _remove_left(target.parent, own)
    short = len(os.fsencode(target.suffix)) <= _LONGEST
    try:
        handle, name = tempfile.mkstemp(
            dir=target.parent,
            prefix=f"{own}-{os.getpid()}.",
            suffix=target.suffix if short else "",
        )
        os.close(handle)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    temporary = Path(name)
    try:
        yield temporary
        _keep_mode(temporary, target)
        temporary.replace(target)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _hidden(target: Path, *more: str) -> str:
    """Return how hidden files beside a file begin; its own name may be too long."""
    key = "\0".join([target.name, *more]).encode("utf-8", "surrogatepass")
    return f".trustdoctor-{blake2b(key, digest_size=8).hexdigest()}"


def _remove_left(folder: Path, own: str) -> None:
    """Remove temporary files of processes of this machine that are no more."""
    with suppress(OSError):
        for other in folder.glob(f"{own}-*"):
            pid = other.name.removeprefix(f"{own}-").partition(".")[0]
            if pid.isdecimal() and not _lives(int(pid)):
                other.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    if sys.platform == "win32":  # where asking would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True


@contextmanager
def locked(path: str | Path) -> Iterator[Path]:
    """Yield a file that no other process has locked meanwhile.

    Read, change and write that file within. Others wait. The lock is that of a hidden
    file beside it; the system frees it when the process ends in whatever way, and the
    next one that locks takes over what was left.
    """
    target = require_writable(path)
    beside = target.with_name(f"{_hidden(target)}.lock")
    try:
        handle = _take(beside)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    try:
        yield target
    finally:
        _give_back(handle, beside)


def _take(beside: Path) -> int:
    """Lock a file, and be sure that it is still the one of that name."""
    while True:
        handle = _open_lock(beside)
        try:
            _wait(handle)
            if os.path.samestat(os.fstat(handle), beside.stat()):
                return handle
        except FileNotFoundError:  # its last owner removed it
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open_lock(beside: Path) -> int:
    strict = getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(beside, os.O_RDWR | os.O_CREAT | strict, 0o666)
    except PermissionError:
        if not beside.exists():
            raise
        # Another user's can be locked as well.
        return os.open(beside, os.O_RDONLY | strict)


def _wait(handle: int) -> None:
    if sys.platform == "win32":
        while True:
            with suppress(OSError):  # it gives up after ten seconds
                msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
                return
    else:
        fcntl.flock(handle, fcntl.LOCK_EX)


def _give_back(handle: int, beside: Path) -> None:
    """Remove the lock; whoever waits for it looks again."""
    if sys.platform == "win32":  # where nobody can remove a file that is open
        os.close(handle)
    with suppress(OSError):  # another user's, or in use
        beside.unlink(missing_ok=True)
    if sys.platform != "win32":
        os.close(handle)


def require_writable(path: str | Path) -> Path:
    """Return a path in its folder itself, or say before any work why none is there.

    A link of that name is not followed.
    """
    try:
        if Path(path).resolve().is_symlink():
            message = f"cannot write {path}: its links go in a circle. Name a file."
            raise OutputError(message)
        target = Path(path).parent.resolve() / Path(path).name
        if target.exists() and not target.is_file():
            message = f"cannot write {target}: it is not a regular file. Name a file."
            raise OutputError(message)
        if not target.parent.is_dir():
            message = f"cannot write {target}: there is no folder {target.parent}."
            raise OutputError(message)
    except OutputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        # No access, too long a name, a link loop, a zero byte in the name.
        message = f"cannot write {path}: {error}. Name another file."
        raise OutputError(message) from error
    return target


def require_no_link(path: str | Path, what: str) -> None:
    """Refuse a link as a file that is read, changed and written again.

    Following it would change whatever it leads to, and replacing it would leave two
    files that both claim to be the one.
    """
    if Path(path).is_symlink():
        message = (
            f"expected {what} in {path}, got a link to {resolved(Path(path))}. Name "
            "that file itself."
        )
        raise OutputError(message)


def require_apart(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, by whatever name."""
    places = {same_file(other): other for other in inputs}
    for output in outputs:
        other = places.get(same_file(output))
        if other is not None:
            known = "" if output == other else f", {other}"
            message = (
                f"the output {output} is the input itself{known}. Name another file."
            )
            raise OutputError(message)


def same_file(path: Path) -> Any:
    """Return what is equal for two names of one file, links included."""
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, as writing does
    except (OSError, ValueError):
        return resolved(path)
    return found.st_dev, found.st_ino


def resolved(path: Path) -> Path:
    """Return the file behind a path, or the path where its links go in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _keep_mode(temporary: Path, target: Path) -> None:
    """Give the new file the mode of the old one, or that of any new file."""
    if target.exists() and not target.is_symlink():
        temporary.chmod(target.stat().st_mode & 0o777)
    else:
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)


def _message(target: Path, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return (
        f"cannot write {target}: {reason}. Nothing was changed; "
        "choose another path or make room, and run again."
    )
