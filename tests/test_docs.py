"""What README and the documentation show was really printed."""

import importlib.util
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

import trustdoctor as td
from trustdoctor import engines, files, gates, scores
from trustdoctor.adapters import torch as adapters_torch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [  # the day in production is run in tests/service/test_day.py
    path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if path.stem != "day_in_production"
]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


QUICK = ("README.md", "docs/index.md", "docs/serving.md", "docs/scores/alpha.md")
"""Pages whose code `make test` runs; the others' runs in the soak."""


def page_cases():
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        quick = name in QUICK or "```" not in page.read_text(encoding="utf-8")
        yield pytest.param(page, id=name, marks=() if quick else pytest.mark.more)


@pytest.mark.parametrize("page", list(page_cases()))
def test_code_blocks_print_what_is_shown(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    blocks = load(ROOT / "tests" / "blocks.py")
    assert blocks.steady(blocks.updated(text, tmp_path)) == blocks.steady(text)


def test_blocks_that_are_neither_run_nor_excused_are_refused(tmp_path):
    blocks = load(ROOT / "tests" / "blocks.py")
    for text in (
        "```sh\nls\n```",
        "```text\nalone\n```",
        "```console\n$ exit 3\n```",
        "```python\nprint(1)\n```",
        "```python\nprint(1)\n```\n```python\n2\n```",
        "- a list\n  ```python\n  1\n  ```",
        '```python title="x"\n1\n```',
        "```yaml\na: 1\n```",
        "```yaml\n# a.yml\n- [\n```",
    ):
        with pytest.raises((AssertionError, yaml.YAMLError)):
            blocks.updated(text, tmp_path)
    excused = "<!-- not run: it is long -->\n```sh\nls\n```"
    assert blocks.updated(excused, tmp_path) == excused
    wrong = "```python\nprint(2)\n```\n```text\n1\n```"
    assert blocks.updated(wrong, tmp_path) == wrong.replace("1", "2")


GOING_ON = """```console
$ echo $$ > pid; exec sleep 600 &
$ until [ -s pid ]; do sleep 0.05; done; echo --port 8571 | tee used
--port 8571
```"""


def test_what_goes_on_ends_with_its_page(tmp_path):
    blocks = load(ROOT / "tests" / "blocks.py")
    assert blocks.updated(GOING_ON, tmp_path) == GOING_ON
    assert _has_ended(tmp_path / "pid")
    assert (tmp_path / "used").read_text() != "--port 8571\n"  # one that is free here
    with pytest.raises(AssertionError, match="exit 3 failed"):
        blocks.updated(f"{GOING_ON}\n```console\n$ exit 3\n```", tmp_path)
    assert _has_ended(tmp_path / "pid")


def _has_ended(path):
    process = int(path.read_text())
    path.unlink()
    return not Path(f"/proc/{process}").exists()


@pytest.mark.soak
def test_the_page_on_doctor_is_what_its_commands_give(shared):
    page = (ROOT / "docs" / "what-doctor-does.md").read_text(encoding="utf-8")
    assert load(ROOT / "benchmarks" / "doctor_page.py").make(shared) == page


def test_every_score_has_a_page():
    pages = {path.stem for path in (ROOT / "docs" / "scores").glob("*.md")}
    assert pages == {*td.SCORES, "radius", "second_opinion", "index"}
    nav = (ROOT / "mkdocs.yml").read_text()
    for name in pages:
        assert f"scores/{name}.md" in nav


def names_in_the_reference():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(r"^::: trustdoctor\.(\S+)$", page, re.MULTILINE)


def test_the_reference_has_every_public_name_once():
    names = names_in_the_reference()
    assert set(td.__all__) <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("room", "contracts"),
    [
        (
            gates,
            ["Rule", "RuleOptions", "ExpectedCounts", "Cut", "Sample", "find_target"],
        ),
        (files, ["FORMATS", "Format", "register_format", "find_format", "Source"]),
        (engines, ["ENGINES", "Engine", "State", "register_engine", "find_engine"]),
        (scores, ["find_score", "find_logit_score", "score_all"]),
        (adapters_torch, adapters_torch.__all__),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_reference_lists_the_extension_points(room, contracts):
    assert set(contracts) <= set(room.__all__)
    inside = room.__name__.removeprefix("trustdoctor.")
    documented = set(names_in_the_reference())
    public = set(td.__all__)
    missing = {n for n in contracts if f"{inside}.{n}" not in documented} - public
    assert missing == set()


def test_the_reference_names_what_is_there():
    for name in names_in_the_reference():
        path, _, last = f"trustdoctor.{name}".rpartition(".")
        assert hasattr(importlib.import_module(path), last), name


ODD = re.compile(
    r"\bhits?\b|\bis no\b(?! (?:more|less|longer|better|worse))"
    r"|\b(?:row|line|page|column|pass|passes|MB) a \w+\b(?=[.,:;|)]|$)|\bfor ever\b",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_are_in_plain_english(page):
    text = page.read_text(encoding="utf-8")
    assert ODD.findall(text) == []


def test_odd_words_are_found():
    for words in ("one row a prediction.", "ranks above hits", "2.14 passes a row;"):
        assert ODD.search(words)
    for words in ("one row per prediction", "is no better than it", "a row"):
        assert not ODD.search(words)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built documentation."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    command = [sys.executable, ROOT / "docs" / "build.py", folder]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return folder / "build" / "site"


@pytest.mark.soak  # as `make docs`, which the pipeline runs for each change
def test_the_documentation_builds_without_a_warning(site):
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    text = "\n".join(pages.values())
    loaded = re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]*)"', text)
    assert loaded == []  # pages open offline
    live = re.search(r'<iframe[^>]*src="([^"]+)"', pages[site / "index.html"])[1]
    assert site / live in pages
    assert "$$" not in text  # formulas are drawn


@pytest.mark.soak
def test_the_search_works_from_disk(site, browser):
    page = browser.new_page()
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("shortlist", delay=30)
    page.get_by_text(re.compile(r"\d+ results")).wait_for()
    page.close()
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []


def test_a_page_outside_the_navigation_is_missed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lost.md").write_text("# Lost")
    (tmp_path / "docs" / "index.md").write_text("# Home")
    (tmp_path / "mkdocs.yml").write_text("nav:\n  - Start: index.md\n")
    command = [sys.executable, ROOT / "docs" / "build.py", tmp_path]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert "not in the navigation of mkdocs.yml: lost.md" in completed.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example, tmp_path):
    completed = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    shown = textwrap.dedent(load(example).__doc__.split("prints::\n\n")[1])
    assert [x.rstrip() for x in completed.stdout.splitlines()] == shown.splitlines()


USED = """
import numpy as np
from pathlib import Path
from trustdoctor.engines import Means, calibrate_files, diagnose, find_engine, screen

rng = np.random.default_rng(0)
z = 2 * rng.normal(size=(400, 3))
labels = np.where(rng.random(400) < 0.8, z.argmax(1), 0)
table = pl.DataFrame({f"logit_{j}": z[:, j] for j in range(3)} | {"label": labels})
table.write_avro("rows.avro")
source = files.find_source("rows.avro")
means = Means(find_engine("slow"), 2_000_000_000)
assert diagnose(source, scores=["spread"], means=means).n == 400
gate = calibrate_files(source, score="spread", share=0.5, means=means)
done = screen(source, gate, Path("out.parquet"), means=means)
assert done.accepted == 200
p = td.Predictions.from_logits(z, labels, features=z)
measured = td.evaluate(p, scores=["spread"]).scores["spread"]
area, aurc = measured["accuracy_area"], measured["aurc"]
assert abs(area.value - (1 - aurc.value)) < 1e-12
assert area.low < area.value < area.high
gate = td.calibrate(p, score=Centre.fit(p), frr=0.1)
gate.save("gate.json")
again = td.Gate.load("gate.json").screen(p)
assert (again.accepted == gate.screen(p).accepted).all()
"""


def test_the_map_of_rooms_has_all_layers_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = re.findall(r"trustdoctor\.(\w+)", " ".join(layers))
    house = page[page.index("## The house") :]
    drawn = re.search(r"\n\n((?: {4}[a-z].*\n)+)", house)[1].splitlines()
    names = [name for line in drawn for name in re.split(" {3,}", line[4:])[0].split()]
    assert names == [room for room in rooms if not room.startswith("_")]


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"]
)
def test_pages_for_contributors_name_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./-]+/[\w.-]*)`", text)
    folders = (ROOT, ROOT / "src", ROOT / "src" / "trustdoctor")
    elsewhere = ("../", "dist/")  # next to the project, and made by it
    missing = [
        path
        for path in paths
        if not path.startswith(elsewhere)
        and not any((folder / path).exists() for folder in folders)
    ]
    assert len(paths) > 10
    assert not missing


def test_the_examples_for_contributors_run(tmp_path):
    """In a separate process: their registrations must not stay."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = load(ROOT / "tests" / "blocks.py").BLOCK.finditer(text)
    code = [m["body"] for m in blocks if m["kind"] == "python" and not m["skip"]]
    assert len(code) == 6
    completed = subprocess.run(
        [sys.executable, "-c", "\n".join([*code, USED])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
