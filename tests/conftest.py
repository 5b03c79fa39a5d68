import os
import resource
import shutil
import sys
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from benchmark_scripts import load_benchmark
from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items):
    """Leave to the soak what `make test` has no time for.

    That is most cases of sampled tests, of tests with very many cases, and of the
    service on PostgreSQL.
    """
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    last_index = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        sampled = item.get_closest_marker("sampled")
        every = sampled.args[0] if sampled else _every(name, cases[name])
        if "tests/service/" in name and "postgresql" in item.nodeid:
            name, every = "postgresql", 4
        last_index[name] = last_index.get(name, -1) + 1
        if last_index[name] % every:
            item.add_marker(pytest.mark.more)


def _every(name, n_cases):
    """Return which cases of a test run at once: every one, second or fourth."""
    if "test_doc" in name:  # pages and examples are all read
        return 1
    return 1 if n_cases <= 24 else 2 if n_cases <= 100 else 4


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def benchmark_of():
    """A script of benchmarks/, by its name."""
    return load_benchmark


@pytest.fixture(scope="session")
def shared():
    """The folder of data that is not part of the project."""
    folder = Path(os.environ.get("TRUSTDOCTOR_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"the data folder {folder} is absent; set TRUSTDOCTOR_SHARED")
    return folder


PAGES_IN = ("cli", "commands", "evaluation", "files", "predictions", "report")


@pytest.fixture(scope="module", autouse=True)
def _few_previews(request):
    """Simulate ten calibrations for each value on a page, not fifty, in some rooms.

    Simulating takes nine tenths of the time of a page; tests/gates judge it.
    """
    if request.path.parent.name not in PAGES_IN:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trustdoctor.gates.outlook.PREVIEW_DRAWS", 10)
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def full_disk():
    """A limit on file size: the system refuses the write as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def run(capsys, monkeypatch):
    """The command line, in this process: arguments to exit code, output and errors."""
    from trustdoctor import cli

    def run(*arguments, columns=200, cwd=None):
        argv = ["trustdoctor", *map(str, arguments)]
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            patch.setenv("COLUMNS", str(columns))
            if cwd is not None:
                patch.chdir(cwd)
            capsys.readouterr()
            with pytest.raises(SystemExit) as exit_info:
                cli.main()
        out, err = capsys.readouterr()
        return CompletedProcess(argv, exit_info.value.code or 0, out, err)

    return run


FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, headless."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium: apt install chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()
