"""Files written whole or not at all, and by one process at a time."""

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

_LONGEST_SUFFIX = 20  # bytes; a longer one does not name a format


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, moved there if the block succeeds.

    A link of that name is replaced, and what it leads to stays as it is. Whatever goes
    wrong in between (a full disk, an exception), the old file stays as it was and no
    temporary file remains. Temporary files of killed processes are removed by the next
    process that writes there.
    """
    target = require_writable(path)
    # The machine's name: other machines may write to a shared folder, and their process
    # ids mean nothing here.
    prefix = _hidden_prefix(target, platform.node())
    _remove_orphans(target.parent, prefix)
    has_short_suffix = len(os.fsencode(target.suffix)) <= _LONGEST_SUFFIX
    try:
        handle, name = tempfile.mkstemp(
            dir=target.parent,
            prefix=f"{prefix}-{os.getpid()}.",
            suffix=target.suffix if has_short_suffix else "",
        )
        os.close(handle)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    temporary = Path(name)
    try:
        yield temporary
        _copy_mode(temporary, target)
        temporary.replace(target)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _hidden_prefix(target: Path, *keys: str) -> str:
    """Return the prefix of hidden files that belong to a file."""
    # A digest, since a file's name with anything added may be too long for a name.
    key = "\0".join([target.name, *keys]).encode("utf-8", "surrogatepass")
    return f".trustdoctor-{blake2b(key, digest_size=8).hexdigest()}"


def _remove_orphans(folder: Path, prefix: str) -> None:
    """Remove temporary files of processes of this machine that no longer run."""
    with suppress(OSError):
        for temporary in folder.glob(f"{prefix}-*"):
            pid = temporary.name.removeprefix(f"{prefix}-").partition(".")[0]
            if pid.isdecimal() and not _is_running(int(pid)):
                temporary.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill ends a process there, whatever the signal
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
    """Yield a file, locked: other processes wait until the block ends.

    Read, change and write the file within the block. The lock is on a hidden file
    beside it. The system frees it however the process ends.
    """
    target = require_writable(path)
    # Not on the file itself: `replacing` puts a new file in its place, and whoever
    # waited for the old one would hold a lock that nobody else sees.
    lock_path = target.with_name(f"{_hidden_prefix(target)}.lock")
    try:
        handle = _acquire_lock(lock_path)
    except OSError as error:
        raise OutputError(_message(target, error)) from error
    try:
        yield target
    finally:
        _release_lock(handle, lock_path)


def _acquire_lock(lock_path: Path) -> int:
    """Return the handle of the lock file, locked, and still the file of that name."""
    while True:
        handle = _open_lock(lock_path)
        try:
            _lock(handle)
            # The last owner may have removed the file between open and lock: the lock
            # would then be on a file without a name.
            if os.path.samestat(os.fstat(handle), lock_path.stat()):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open_lock(lock_path: Path) -> int:
    # A link of that name would let another user have us lock any file of ours.
    no_follow = getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(lock_path, os.O_RDWR | os.O_CREAT | no_follow, 0o666)
    except PermissionError:
        if not lock_path.exists():
            raise
        # Another user's file can be locked as well.
        return os.open(lock_path, os.O_RDONLY | no_follow)


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        while True:
            with suppress(OSError):  # LK_LOCK gives up after ten seconds
                msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
                return
    else:
        fcntl.flock(handle, fcntl.LOCK_EX)


def _release_lock(handle: int, lock_path: Path) -> None:
    """Remove the lock file; a process that waits for it then opens a new one."""
    if sys.platform == "win32":  # an open file cannot be removed there
        os.close(handle)
    with suppress(OSError):  # another user's, or in use
        lock_path.unlink(missing_ok=True)
    if sys.platform != "win32":
        os.close(handle)


def require_writable(path: str | Path) -> Path:
    """Return the path with its folder resolved; refuse one that cannot be written.

    A link of that name is not followed. Call it before any work is done.
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


def require_no_link(path: str | Path, kind: str) -> None:
    """Refuse a link as a file that is read, changed and written again."""
    # Following it would change whatever it leads to; replacing it would leave two files
    # that both claim to be the current one.
    if Path(path).is_symlink():
        message = (
            f"expected {kind} in {path}, got a link to {resolved(Path(path))}. Name "
            "that file itself."
        )
        raise OutputError(message)


def require_apart(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, whatever its name."""
    input_paths = {file_identity(path): path for path in inputs}
    for output in outputs:
        input_path = input_paths.get(file_identity(output))
        if input_path is not None:
            its_name = "" if output == input_path else f", {input_path}"
            message = (
                f"the output {output} is the input itself{its_name}. Name another file."
            )
            raise OutputError(message)


def file_identity(path: Path) -> Any:
    """Return a key of the file: the same for all of its names, links included."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links, as writing does
    except (OSError, ValueError):
        return resolved(path)
    return status.st_dev, status.st_ino


def resolved(path: Path) -> Path:
    """Return the file behind a path; the path itself if its links go in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _copy_mode(temporary: Path, target: Path) -> None:
    """Give the new file the mode of the old one, or that of any new file."""
    # Temporary files are made readable by their owner alone.
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
