"""Writing files whole or not at all."""

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trustdoctor.errors import OutputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, moved there if the block succeeds.

    Whatever goes wrong in between (a full disk, an exception), the old file
    stays as it was and no temporary file is left. What a killed process left is
    removed by the next one that writes there.
    """
    target = require_writable(path)
    host = platform.node()
    _remove_left(target, host)
    try:
        handle, name = tempfile.mkstemp(
            dir=target.parent,
            prefix=f".{target.name}.{host}-{os.getpid()}.",
            suffix=target.suffix,
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


def _remove_left(target: Path, host: str) -> None:
    """Remove temporary files of processes of this machine that are no more."""
    with suppress(OSError):
        for other in target.parent.iterdir():
            rest = other.name.removeprefix(f".{target.name}.{host}-")
            pid = rest.partition(".")[0]
            if rest != other.name and pid.isdigit() and not _lives(int(pid)):
                other.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True


def require_writable(path: str | Path) -> Path:
    """Return the file behind a path, or say before any work why it cannot be one."""
    try:
        target = Path(path).resolve()  # a link stays a link
        if target.exists() and not target.is_file():
            message = f"cannot write {target}: it is not a regular file. Name a file."
            raise OutputError(message)
        if not target.parent.is_dir():
            message = f"cannot write {target}: there is no folder {target.parent}."
            raise OutputError(message)
    except (OSError, RuntimeError) as error:  # no access, too long a name, a link loop
        message = f"cannot write {path}: {error}. Name another file."
        raise OutputError(message) from error
    return target


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _keep_mode(temporary: Path, target: Path) -> None:
    """Give the new file the mode of the old one, or that of any new file."""
    if target.exists():
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
