import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
def test_the_demo_of_perturbation_runs_and_shows_both_protocols():
    command = [Path(sys.executable).with_name("trustdoctor"), "demo", "--pbb"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    for word in ("deployed", "paper", "AUROC", "(deployed), perturbation "):
        assert word in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
