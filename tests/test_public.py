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


def test_every_public_function_and_class_has_a_docstring():
    for name in td.__all__:
        value = getattr(td, name)
        if callable(value) or isinstance(value, types.ModuleType):
            assert value.__doc__, name


def test_importing_pulls_in_no_framework():
    code = "import sys, trustdoctor; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert FRAMEWORKS.isdisjoint(out.stdout.split())


def test_the_changelogs_top_version_is_ours(root):
    text = (root / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d.*?)\]", text, re.MULTILINE)[0] == td.__version__


def test_torch_is_pinned_once(root):
    pins = (root / "constraints.txt").read_text()
    assert re.findall(r"^torch==\S+$", pins, re.MULTILINE) == ["torch==2.13.0"]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        "torch",
        "sklearn",
        "transformers",
        "onnx",
        "ray",
        "plot",
        "images",
        "dev",
        "docs",
    }
    assert set(extras) == named


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
