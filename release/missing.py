"""A plugin of pytest: what needs a package that is not installed is skipped.

Only packages that are not the project's own count, and only where they are absent.
"""

from importlib.util import find_spec

import pytest

from trustdoctor.errors import MissingPackageError


def _absent(error):
    """Return the name of the package that an error misses, or nothing."""
    while error is not None:
        if isinstance(error, MissingPackageError):
            return str(error)
        name = getattr(error, "name", None) if isinstance(error, ImportError) else None
        top = (name or "trustdoctor").partition(".")[0]
        if top != "trustdoctor" and find_spec(top) is None:
            return name
        error = error.__cause__
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Count a test as skipped where it needs what is not there."""
    report = yield
    if call.excinfo is not None and report.failed:
        absent = _absent(call.excinfo.value)
        if absent:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: needs {absent}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Leave out a file of tests that needs what is not there."""
    report = yield
    call = getattr(report, "call", None)
    if report.failed and call is not None and call.excinfo is not None:
        error = call.excinfo.value
        absent = _absent(error if isinstance(error, ImportError) else error.__cause__)
        if absent:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: needs {absent}")
    return report
