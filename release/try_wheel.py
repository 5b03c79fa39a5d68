"""Installs a wheel where there is no compiler, runs the demo, and tests what came.

    python release/try_wheel.py WHEEL --sdist SDIST [--full] [--lowest] [--only TESTS]

Run it by the Python that is to be tried; it needs nothing but pip. The tests are those
of the sdist, whose own sources are removed: what they import is the installed wheel.
They run with what can be installed from PyPI without PyTorch; cases that need more are
skipped, and counted. ``--full`` installs everything, as `make test` does. ``--lowest``
takes the lowest versions that pyproject.toml allows. ``--only`` names a folder, as
tests/kernels. Prints one row of a table.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONAL = ["sklearn", "onnx", "plot", "images", "serve"]
"""Extras that come without PyTorch."""

TOOLS = ["hypothesis", "mpmath", "pytest", "pytest-xdist", "pyyaml"]
MORE = ["jsonschema", "openapi-spec-validator", "prometheus-client"]
PAGES = ["test_docs.py", "test_notebooks.py", "test_readme.py"]
"""Tests of the pages, which need every extra."""

CHECKOUT = ["test_public.py", "test_release.py"]
"""Tests of a checkout's own files."""

ASK = """
import json, pathlib, numpy, polars, trustdoctor
from trustdoctor.kernels import _native
print(json.dumps({
    "numpy": numpy.__version__, "polars": polars.__version__,
    "sets": _native.instruction_sets(), "at": str(pathlib.Path(trustdoctor.__file__)),
}))
"""


class Place:
    """An environment of its own, whose commands find no compiler."""

    def __init__(self, folder):
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        bare = {"PATH": str(self.bin), "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
        self.env = os.environ | bare
        self.env.pop("CC", None)

    def run(self, *command, check=True, **more):
        """Run a command of the environment; return what it printed."""
        name, *rest = map(str, command)
        done = subprocess.run(
            [self.bin / name, *rest],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **more,
        )
        if check and done.returncode:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")
        return done

    def pip(self, *wanted, check=True):
        """Install packages, none of which is compiled."""
        quiet = ["--quiet", "--only-binary=:all:", "--disable-pip-version-check"]
        return self.run("python", "-m", "pip", "install", *quiet, *wanted, check=check)


def install(place, given):
    """Install the wheel, run the demo; return the seconds that both took."""
    start = time.perf_counter()
    if given.lowest:
        place.pip("uv")
        lowest = ["--resolution", "lowest", "--only-binary", ":all:", "--quiet"]
        here = ["--python", place.bin / "python"]
        place.run("uv", "pip", "install", *here, *lowest, given.wheel)
    else:
        place.pip(given.wheel)
    said = place.run("trustdoctor", "demo").stdout
    took = time.perf_counter() - start
    if "AUROC" not in said:
        sys.exit(f"expected the demo's table, got:\n{said}")
    return took


def packages(place):
    """Return how many packages there are beside pip and uv, and their megabytes."""
    listed = place.run("python", "-m", "pip", "list", "--format=json").stdout
    names = [one["name"] for one in json.loads(listed[listed.index("[") :])]
    own = [name for name in names if name not in {"pip", "setuptools", "uv"}]
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(place.run("python", "-c", code).stdout.strip())
    apart = {"pip", "setuptools", "uv"}
    size = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and path.relative_to(site).parts[0].partition("-")[0] not in apart
    )
    return len(own), size / 1e6


def install_tools(place, given):
    """Install what tests need; return the extras that cannot be had here."""
    if given.full:
        (torch,) = re.findall(r"^torch==.*$", given.constraints, re.MULTILINE)
        place.pip(torch)
        held = place.folder / "constraints.txt"
        held.write_text(given.constraints)
        place.pip("-c", held, f"{given.wheel}[dev]")
        return []
    place.pip(*TOOLS)
    if given.only:
        return []
    missing = [
        extra
        for extra in OPTIONAL
        if place.pip(f"{given.wheel}[{extra}]", check=False).returncode
    ]
    for name in MORE:
        place.pip(name, check=False)
    return missing


def test(place, tree, given):
    """Run the tests of the sdist against what is installed; return the closing line."""
    command = ["-m", "pytest", "-q", "-n", given.cores, "-m", "not soak and not more"]
    command += ["-p", "no:cacheprovider"]
    left_out = CHECKOUT
    if not given.full:
        place.env["PYTHONPATH"] = str(HERE)
        command += ["-p", "missing"]
        left_out = CHECKOUT + PAGES
    command += [f"--ignore=tests/{name}" for name in left_out]
    command += [given.only] if given.only else []
    place.env["PATH"] = f"{place.bin}{os.pathsep}{os.environ['PATH']}"  # for chromium
    done = place.run("python", *command, check=False, cwd=tree)
    Path(given.log).write_text(done.stdout)
    return done.stdout.strip().splitlines()[-1]


def unpack(sdist, folder):
    """Unpack the sdist without its sources."""
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, **safe)
    (tree,) = folder.iterdir()
    (tree / "src").rename(folder / "sources-that-nobody-imports")
    return tree


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--sdist", type=Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--lowest", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--cores", default="auto")
    parser.add_argument("--log", default="try_wheel.log")
    given = parser.parse_args()
    given.constraints = (HERE.parent / "constraints.txt").read_text()
    given.wheel = given.wheel.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch))
        took = install(place, given)
        n, size = packages(place)
        found = json.loads(place.run("python", "-c", ASK).stdout)
        if not found["at"].startswith(scratch):
            sys.exit(f"expected the installed wheel, got {found['at']}")
        tests = missing = ""
        if given.sdist:
            without = install_tools(place, given)
            missing = f" without {', '.join(without)}" if without else ""
            (Path(scratch) / "tests").mkdir()
            tests = test(place, unpack(given.sdist, Path(scratch) / "tests"), given)
        platform = given.wheel.stem.rpartition("-")[2]
        kernel = ", ".join(found["sets"]) or "numpy"
        versions = f"numpy {found['numpy']}, polars {found['polars']}"
        cells = [platform, f"{sys.version_info[0]}.{sys.version_info[1]}", versions]
        cells += [kernel, f"{took:.0f} s", f"{n} packages, {size:.0f} MB"]
        cells.append(f"{given.only} {tests}{missing}".strip())
        print(f"| {' | '.join(cells)} |", flush=True)
    if tests and ("failed" in tests or "error" in tests):
        sys.exit(1)


if __name__ == "__main__":
    main()
