import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
def test_the_demo_of_perturbation_runs_and_shows_both_protocols():
    command = [Path(sys.executable).with_name("trustdoctor"), "demo", "--pbb"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for word in ("deployed", "paper", "AUROC", "(deployed), perturbation "):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
