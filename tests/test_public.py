import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

import trustdoctor as td

FRAMEWORKS = {
    "torch", "ray", "transformers", "onnx", "onnxruntime", "sklearn", "jax",
    "matplotlib", "polars", "scipy.stats", "typer", "rich",
}  # fmt: skip


def test_all_lists_every_public_name():
    modules = {
        name
        for name, value in vars(td).items()
        if isinstance(value, types.ModuleType) and name not in td.__all__
    }
    public = {name for name in vars(td) if not name.startswith("_")} - modules
    assert public == set(td.__all__)
    assert td.__all__ == sorted(td.__all__, key=_ruffs_order)


def _ruffs_order(name):
    """Constants, classes, functions."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


ROOMS = (
    "cli", "demo", "engines", "evaluation", "files", "gates", "kernels", "metrics",
    "opinion", "predictions", "report", "reproduce", "scores", "watch",
)  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_offers_what_it_lists(room):
    """Every name is there, once, and comes from the room itself."""
    module = importlib.import_module(f"trustdoctor.{room}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
        if isinstance(value, (type, types.FunctionType)):
            assert f"{home}.".startswith(f"trustdoctor.{room}."), name


def test_no_module_shares_its_name_with_a_function_of_its_own_room():
    """`from trustdoctor.gates import calibrate` must never be a matter of order."""
    for room in ROOMS:
        package = importlib.import_module(f"trustdoctor.{room}")
        functions = {
            name
            for name in package.__all__
            if isinstance(getattr(package, name), types.FunctionType)
        }
        children = {m.name for m in pkgutil.iter_modules(package.__path__)}
        assert not functions & children, room


def test_nothing_hides_an_import(root):
    for path in (root / "src").rglob("*.py"):
        assert "import_module" not in path.read_text(), path


def test_every_public_name_has_an_example_that_runs():
    """tests/test_doctests.py runs them."""
    for name in td.__all__:
        value = getattr(td, name)
        if not isinstance(value, (dict, types.ModuleType)):
            assert ">>>" in value.__doc__, name


def test_importing_pulls_in_no_framework():
    code = "import sys, trustdoctor; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert FRAMEWORKS.isdisjoint(out.stdout.split())


def test_the_changelogs_top_version_is_ours(root):
    text = (root / "CHANGELOG.md").read_text()
    top = re.findall(r"^## \[(.*?)\]", text, re.MULTILINE)[0]
    released = top if top != "Unreleased" else td.__version__
    assert released == td.__version__
    assert (top == "Unreleased") == ("dev" in td.__version__)


def test_torch_is_pinned_once(root):
    pins = (root / "constraints.txt").read_text()
    assert re.findall(r"^torch==\S+$", pins, re.MULTILINE) == ["torch==2.13.0"]


def test_every_extra_that_a_message_names_exists(root):
    """The packages that `missing_package` names can be installed."""
    text = (root / "pyproject.toml").read_text()
    extras = set(tomllib.loads(text)["project"]["optional-dependencies"])
    named = set()
    for path in (root / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "missing_package"
            ):
                (extra,) = [k.value for k in node.keywords if k.arg == "extra"]
                named |= set(ast.literal_eval(extra).split(","))
    assert named
    assert named <= extras


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("torch", "torch", "torch"),
        ("sklearn", "sklearn", "sklearn"),
        ("transformers", "transformers", "transformers"),
        ("onnx", "onnx", "onnx"),
    ],
)
def test_an_adapter_without_its_package_names_the_pip_line(adapter, package, extra):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from trustdoctor.errors import MissingPackageError\n"
        "try:\n"
        f"    import trustdoctor.adapters.{adapter}\n"
        "except MissingPackageError as error:\n"
        "    print(error)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert f'pip install "trustdoctor[{extra}]"' in completed.stdout


def test_no_two_classes_share_a_name():
    """So that a name in a message, in the docs or in a search means one thing."""
    modules_by_class = {}
    for path in Path(td.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules_by_class.setdefault(node.name, []).append(path.name)
    repeated = {name: m for name, m in modules_by_class.items() if len(m) > 1}
    assert not repeated
