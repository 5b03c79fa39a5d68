import importlib.util

import pytest


@pytest.fixture
def doctor_page(root):
    path = root / "benchmarks" / "doctor_page.py"
    spec = importlib.util.spec_from_file_location("doctor_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_doctor_is_what_its_commands_give(doctor_page, root, shared):
    page = (root / "docs" / "what-doctor-does.md").read_text(encoding="utf-8")
    assert doctor_page.make(shared) == page
