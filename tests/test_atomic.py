import os
import stat

import pytest

from trustdoctor.atomic import replacing, write_text
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


def test_paths_that_cannot_be_written_are_said(tmp_path):
    for path in (tmp_path / "absent" / "x", tmp_path, "/dev/null"):
        with pytest.raises(OutputError, match="cannot write"):
            write_text(path, "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)  # noqa: PTH116


def test_modes_and_links_are_kept(tmp_path):
    path = tmp_path / "out.txt"
    write_text(path, "a")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o600)
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    write_text(link, "b")
    assert link.is_symlink()
    assert path.read_text() == "b"
    assert path.stat().st_mode & 0o777 == 0o600


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
