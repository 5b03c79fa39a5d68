"""Links among outputs are replaced, never followed; those to inputs are refused."""

import shutil

import pytest

VICTIM = "the only copy\n"
KINDS = {
    "an input": ("../in/a.csv", 2),
    "another input": ("../in/b.csv", 2),
    "the truth": ("../truth.csv", 2),
    "a link to an input": ("../in/also.lnk", 2),
    "the gate": ("../gate.json", 0),
    "any file": ("../victim.txt", 0),
    "nothing": ("../absent.txt", 0),
}


@pytest.fixture
def place(tmp_path, probs, run):
    """A folder of two files, their truth, a gate, and a file of somebody else."""
    gate = ("calibrate", probs, "--frr", "0.1", "-o", tmp_path / "gate.json")
    assert run(*gate).returncode == 0
    (tmp_path / "in").mkdir()
    _, *lines = probs.read_text().splitlines()
    truth = [",".join((line.split(",")[0], line.split(",")[-1])) for line in lines]
    (tmp_path / "truth.csv").write_text("\n".join(("id,label", *truth, "")))
    for name in ("a", "b"):
        shutil.copy(probs, tmp_path / "in" / f"{name}.csv")
    (tmp_path / "in" / "also.lnk").symlink_to("a.csv")
    (tmp_path / "victim.txt").write_text(VICTIM)
    (tmp_path / "out").mkdir()
    return tmp_path


def contents(folder):
    """Return every file that is not an output."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "out" not in path.relative_to(folder).parts
    }


SCREEN = ("screen", "in", "--gate", "gate.json", "--ids", "id", "--truth", "truth.csv")
SCREEN = (*SCREEN, "-o", "out")


@pytest.mark.parametrize("resume", [(), ("--resume",)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(3)
def test_no_link_in_a_folder_of_outputs_is_followed(kind, resume, place, run):
    leads_to, code = KINDS[kind]
    link = place / "out" / "a.csv"
    if resume:
        assert run(*SCREEN, cwd=place).returncode == 0
        link.unlink()
    link.symlink_to(leads_to)
    before = contents(place)
    completed = run(*SCREEN, *resume, cwd=place)
    assert contents(place) == before
    assert completed.returncode == code, completed.stderr
    assert link.is_symlink() == (code == 2)
    if code == 2:
        assert "is the input itself" in completed.stderr
        assert completed.stderr.count("\n") == 1
    else:
        assert link.read_text().startswith("id,prob_0,")


def test_hard_links_to_inputs_are_refused(place, run):
    for name in ("in/a.csv", "truth.csv"):
        link = place / "out" / "b.csv"
        link.hardlink_to(place / name)
        before = contents(place)
        completed = run(*SCREEN, cwd=place)
        assert completed.returncode == 2
        assert "is the input itself" in completed.stderr
        assert contents(place) == before
        link.unlink()


def test_an_input_that_is_a_link_to_an_output_is_refused(place, run):
    shutil.move(place / "in" / "a.csv", place / "out" / "b.csv")
    (place / "in" / "a.csv").symlink_to("../out/b.csv")
    before = (place / "out" / "b.csv").read_bytes()
    completed = run(*SCREEN, cwd=place)
    assert completed.returncode == 2
    assert "lies among the inputs" in completed.stderr
    assert (place / "out" / "b.csv").read_bytes() == before


@pytest.mark.parametrize("leads_to", ["../in/day=1", "../elsewhere", "."])
def test_no_folder_in_a_folder_of_outputs_is_a_link(leads_to, place, run):
    (place / "elsewhere").mkdir()
    for day in ("day=1", "day=2"):
        (place / "in" / day).mkdir()
        shutil.move(place / "in" / "a.csv", place / "in" / day / "a.csv")
        shutil.copy(place / "in" / day / "a.csv", place / "in" / "a.csv")
    (place / "in" / "a.csv").unlink()
    (place / "in" / "b.csv").unlink()
    (place / "out" / "day=1").symlink_to(leads_to)
    before = contents(place)
    completed = run(*SCREEN, cwd=place)
    assert completed.returncode == 2
    assert "link" in completed.stderr or "is the input itself" in completed.stderr
    assert contents(place) == before


SINGLE = {
    "screen in/a.csv --gate gate.json -o LINK.csv": "csv",
    "screen in/a.csv --gate gate.json --json LINK.json": "json",
    "diagnose in/a.csv --html LINK.html": "html",
    "diagnose in/a.csv --json LINK.json": "json",
    "calibrate in/a.csv --frr 0.1 -o LINK.json": "json",
    "compare in/a.csv --json LINK.json": "json",
    "split in/a.csv -o LINK.csv out/rest.csv": "csv",
    "check in/a.csv --gate gate.json --state out/s.json --html LINK.html": "html",
    "check in/a.csv --gate gate.json --state out/s.json --ids id --draw LINK.csv "
    "--review-accepted 0.1": "csv",
}


@pytest.mark.parametrize("leads_to", ["victim.txt", "absent.txt"])
@pytest.mark.parametrize("words", SINGLE)
@pytest.mark.sampled(3)
def test_no_single_output_follows_a_link(words, leads_to, place, run):
    link = place / "out" / f"link.{SINGLE[words]}"
    link.symlink_to(place / leads_to)
    before = contents(place)
    completed = run(*words.replace("LINK", "out/link").split(), cwd=place)
    assert contents(place) == before
    drawn = "--draw" in words and leads_to == "victim.txt"  # others' files are kept
    assert completed.returncode == (2 if drawn else 0), completed.stderr
    assert link.is_symlink() == drawn


def test_a_journal_that_is_a_link_is_not_followed(place, run):
    journal = place / "out" / ".trustdoctor-screen.json"
    journal.symlink_to(place / "victim.txt")
    assert run(*SCREEN, "--resume", cwd=place).returncode == 0
    assert (place / "victim.txt").read_text() == VICTIM
    assert not journal.is_symlink()


@pytest.mark.parametrize("name", ["state.json", "state.db"])
@pytest.mark.parametrize("leads_to", ["victim.txt", "gate.json", "in/a.csv"])
def test_a_state_that_leads_to_something_else_is_refused(name, leads_to, place, run):
    (place / "out" / name).symlink_to(place / leads_to)
    before = contents(place)
    words = f"check in/a.csv --gate gate.json --state out/{name}"
    completed = run(*words.split(), cwd=place)
    assert completed.returncode == 2
    assert contents(place) == before
