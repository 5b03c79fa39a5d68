import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import types

import pytest

import trustdoctor as td

FRAMEWORKS = {
    "torch", "ray", "transformers", "onnx", "onnxruntime", "sklearn", "jax",
    "matplotlib", "polars", "scipy.stats", "typer", "rich",
}  # fmt: skip


def test_all_tells_the_truth():
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


def modules():
    found = pkgutil.walk_packages(td.__path__, "trustdoctor.")
    return [m.name for m in found if not m.name.endswith("_native.kernels")]


def test_no_module_bears_the_name_of_a_public_function():
    """`import trustdoctor.calibrate` would give the function otherwise."""
    functions = {
        n for n in td.__all__ if isinstance(getattr(td, n), types.FunctionType)
    }
    for room in ROOMS:
        module = importlib.import_module(f"trustdoctor.{room}")
        functions |= {
            name
            for name in module.__all__
            if isinstance(getattr(module, name), types.FunctionType)
        }
    last = {name.rpartition(".")[2]: name for name in modules()}
    taken = {last[name] for name in functions & set(last)}
    assert taken == {"trustdoctor.reproduce"}  # the room of the command of that name


def test_nothing_hides_an_import(root):
    for path in (root / "src").rglob("*.py"):
        assert "import_module" not in path.read_text(), path


def test_every_public_name_has_an_example_that_runs():
    """tests/test_doctests.py runs them."""
    for name in td.__all__:
        value = getattr(td, name)
        if not isinstance(value, (dict, types.ModuleType)):
            assert ">>>" in value.__doc__, name


def sizes(root):
    """Lines of code of every function (docstring left out), and of every file."""
    for path in (root / "src").rglob("*.py"):
        text = path.read_text()
        yield str(path.relative_to(root)), len(text.splitlines()), "file"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node):
                    first = node.body[0]
                    lines -= first.end_lineno - first.lineno + 1
                yield f"{path.relative_to(root)}:{node.name}", lines, "function"


def test_files_and_functions_stay_small(root):
    most = {"file": 450, "function": 40}
    kept = {  # with a reason
        "src/trustdoctor/kernels/fused.py:_score_rows",  # one pass, one CUDA kernel
    }
    large = {name for name, lines, kind in sizes(root) if lines > most[kind]}
    assert large == kept


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
    """What `missing_package` tells people to install can be installed."""
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
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert f'pip install "trustdoctor[{extra}]"' in done.stdout
