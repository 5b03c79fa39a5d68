import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from trustdoctor.atomic import locked, replacing, write_text
from trustdoctor.errors import OutputError


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(OutputError, match="Nothing was changed"):
        write_text(path, "x" * 100_000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"half, {1 / 0}")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_paths_that_cannot_be_written_are_reported(tmp_path):
    for path in (tmp_path / "absent" / "x", tmp_path, "/dev/null"):
        with pytest.raises(OutputError, match="cannot write"):
            write_text(path, "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)  # noqa: PTH116


def test_modes_are_kept_and_links_are_replaced(tmp_path):
    path = tmp_path / "out.txt"
    write_text(path, "a")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o600)
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    write_text(link, "b")
    assert not link.is_symlink()
    assert (path.read_text(), link.read_text()) == ("a", "b")
    assert link.stat().st_mode & 0o777 == 0o666 & ~_umask()
    write_text(path, "c")
    assert path.stat().st_mode & 0o777 == 0o600


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    "name",
    ["x" * 255, "x" * 250 + ".json", "ü" * 127, "ü" * 125 + ".csv", "a." + "y" * 253],
    ids=["plain", "suffix", "two bytes", "both", "all suffix"],
)
def test_names_may_be_as_long_as_the_system_takes(name, tmp_path):
    path = tmp_path / name
    write_text(path, "a")
    with locked(path):
        write_text(path, "b")
    assert path.read_text() == "b"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OutputError, match="cannot write"):
        write_text(tmp_path / (name + "xxx"), "a")


def test_a_temporary_name_ends_as_the_file_does(tmp_path):
    for name in ("a.csv", "b.npz"):
        with replacing(tmp_path / name) as temporary:
            assert temporary.suffix == (tmp_path / name).suffix
            assert temporary.name.startswith(".")


def test_what_a_killed_process_left_is_removed(tmp_path):
    path = tmp_path / ("x" * 251 + ".csv")
    code = (
        "import os, sys\n"
        "from trustdoctor.atomic import replacing\n"
        "with replacing(sys.argv[1]) as t:\n"
        "    t.with_name(t.name + '.score').touch()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert completed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    other = tmp_path / "other.csv"
    write_text(other, "a")  # leaves temporary files of others
    assert len(list(tmp_path.iterdir())) == 3
    with replacing(path) as first, replacing(path) as second:  # both live
        for temporary in (first, second):
            temporary.write_text("b")
    assert sorted(tmp_path.iterdir()) == sorted([other, path])


def test_circles_of_links_and_odd_names_are_refused(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.symlink_to(b)
    b.symlink_to(a)
    for path in (a, tmp_path / "x\0y", "\ud800"):
        for write in (lambda p: write_text(p, "x"), lambda p: locked(p).__enter__()):
            with pytest.raises(OutputError, match="cannot write"):
                write(path)
    odd = tmp_path / os.fsdecode(b"\xff\xfe.json")
    write_text(odd, "a")
    assert odd.read_text() == "a"


ADD = """
import os, sys
from pathlib import Path
from trustdoctor.atomic import locked, write_text
go, start = os.pipe()
jobs = []
for name in sys.argv[1:]:
    job = os.fork()
    if job == 0:
        os.close(start)
        os.read(go, 1)  # all at once, when the other end is closed
        path = Path(name)
        for _ in range(25):
            with locked(path) as path:
                n = int(path.read_text()) if path.exists() else 0
                write_text(path, str(n + 1))
        os._exit(0)
    jobs.append(job)
os.close(start)
sys.exit(sum(os.waitpid(job, 0)[1] for job in jobs))
"""


def test_eight_processes_change_one_file_and_nothing_is_lost(tmp_path):
    path, link = tmp_path / "n" / "count", tmp_path / "link" / "count"
    path.parent.mkdir()
    link.parent.symlink_to(path.parent)  # through any folder, it is one file
    subprocess.run([sys.executable, "-c", ADD, *[path, link] * 4], check=True)
    assert path.read_text() == "200"
    assert list(path.parent.iterdir()) == [path]  # no lock is left


def test_a_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "state"
    code = (
        "import sys, time\n"
        "from trustdoctor.atomic import locked\n"
        "with locked(sys.argv[1]):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    assert job.stdout.readline() == b"locked\n"
    lock_times = []

    def wait():
        with locked(path):
            lock_times.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    assert not lock_times
    job.kill()
    waiting.join(60)
    job.communicate()
    assert lock_times
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_was_removed_holds_no_lock(tmp_path):
    """Whoever waited for it looks again, and finds the one that is there now."""
    path = tmp_path / "state"
    order = []

    def second():
        with locked(path):
            order.append("second")

    with locked(path):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")  # a late waiter may get the next lock at once
        (lock,) = tmp_path.iterdir()
        lock.rename(tmp_path / "away")
        lock.touch()  # of a third process, which has not locked it yet
    waiting.join(60)
    assert order == ["first", "second"]


def test_an_error_within_frees_the_lock(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), locked(tmp_path / "state"):
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_locks_go_into_folders_that_can_be_written(tmp_path):
    with pytest.raises(OutputError, match="there is no folder"):
        locked(tmp_path / "absent" / "x").__enter__()
    with pytest.raises(OutputError, match="cannot write"):
        locked("/proc/state").__enter__()
