"""A release has one version, no new dependencies, and lists all its files."""

import re
import tomllib
from datetime import date

import pytest
import yaml

import trustdoctor as td

CORE = {"array-api-compat", "jinja2", "numpy", "polars", "rich", "scipy", "typer"}
CORE |= {"msgspec"}
"""What 0.1 needed, and what reads documents since 0.3."""


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def test_the_core_needs_no_more_than_at_first(project):
    names = {
        re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]
    }
    assert names == CORE


def test_every_core_package_has_its_licence_listed(root, project):
    listed = (root / "docs" / "licences.md").read_text()
    for requirement in project["dependencies"]:
        assert re.match(r"[\w-]+", requirement)[0] in listed


def test_the_citation_is_of_this_version(root):
    """Of the one before, while the next is made."""
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    changes = (root / "CHANGELOG.md").read_text()
    assert f"## [{cited['version']}] - {cited['date-released']}" in changes
    assert isinstance(cited["date-released"], date)
    if "dev" not in td.__version__:
        assert cited["version"] == td.__version__


def test_all_that_is_bundled_is_listed(root):
    listed = (root / "docs" / "licences.md").read_text()
    data = [
        path.relative_to(root)
        for path in (root / "src").rglob("*")
        if path.suffix in {".npz", ".npy", ".parquet", ".onnx", ".safetensors"}
    ]
    assert data
    assert {path.parent.as_posix() for path in data} == {"src/trustdoctor/demo"}
    assert "src/trustdoctor/demo/*.npz" in listed


def test_workflows_run_what_there_is(root):
    targets = set(re.findall(r"^(\w+):", (root / "Makefile").read_text(), re.MULTILINE))
    commands = []
    for path in (root / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            assert job["timeout-minutes"] <= 90, path
            commands += [step["run"] for step in job["steps"] if "run" in step]
    make_targets = {
        name for command in commands for name in re.findall(r"^make (\w+)", command)
    }
    assert make_targets == {"check", "soak", "dist", "docs"}
    assert make_targets <= targets
    for script in re.findall(r"python (\S+\.py)", "\n".join(commands)):
        assert (root / script).is_file(), script


def test_old_calls_of_the_migration_table_are_gone_and_new_ones_there(root):
    changes = (root / "CHANGELOG.md").read_text()
    start = changes.index("### From 0.1")
    table = changes[start : changes.index("###", start + 1)]
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", table, re.MULTILINE)[2:]
    assert len(rows) > 10
    for old, new in rows:
        for name in re.findall(r"`td\.(\w+)", new):
            assert hasattr(td, name), new
        for name in re.findall(r"`td\.([A-Z]\w+)`|`td\.(combine)\(", old):
            assert not hasattr(td, "".join(name)), old
    assert hasattr(td.Watch, "open")
    assert not hasattr(td.Watch, "load_or_start")
