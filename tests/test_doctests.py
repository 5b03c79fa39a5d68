"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import trustdoctor
from trustdoctor.errors import MissingPackageError

MODULES = [
    module.name
    for module in pkgutil.walk_packages(trustdoctor.__path__, "trustdoctor.")
    if not module.name.endswith(("__main__", "_native.kernels"))  # run; not Python
]


@pytest.mark.parametrize("name", ["trustdoctor", *MODULES])
def test_examples_print_what_they_say(name):
    try:
        module = importlib.import_module(name)
    except MissingPackageError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name != "triton":  # which is there with CUDA alone
            raise
        pytest.skip("the CUDA kernel needs triton")
    assert doctest.testmod(module).failed == 0
