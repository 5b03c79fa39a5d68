"""Requests that schemathesis makes of the description, and others that break it."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from service.load import ServiceProcess, make_gate

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        importlib.util.find_spec("schemathesis") is None,
        reason="schemathesis is not installed",
    ),
]

TOKEN = "admin-0123456789-0123456789"

UNSAID = "positive_data_acceptance"
"""The one check that is left out: that a gate takes rows of four classes, or that a
lease is still held, no description can say."""


@pytest.mark.parametrize("tokens", ["", f"admin={TOKEN}"], ids=["open", "tokens"])
def test_the_service_does_what_it_describes(tmp_path, tokens):
    gate = make_gate(tmp_path, frr=0.1, shortlist=0.9)
    env = {"TRUSTDOCTOR_TOKENS": tokens}
    served = ServiceProcess(
        gate, tmp_path / "rows.db", "--review-accepted", "0.5", env=env
    )
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run"),
        f"http://127.0.0.1:{served.port}/openapi.json",
        "--exclude-path=/v1/events",  # which has no end
        f"--exclude-checks={UNSAID}",
        "--max-examples=50",
        "--generation-database=none",
        "--continue-on-failure",
        "--no-color",
        *(["--header", f"Authorization: Bearer {TOKEN}"] if tokens else []),
    ]
    try:
        completed = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )
        assert completed.returncode == 0, (
            completed.stdout[-20_000:] + completed.stderr[-2000:]
        )
        (tested,) = re.findall(r"Tested: (\d+)", completed.stdout)
        assert int(tested) >= 25
        assert served.ask("GET", "/readyz")[0] == 200
        assert '"level": "error"' not in served.log.read_text()
    finally:
        served.stop()
