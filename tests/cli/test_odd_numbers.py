"""Numbers that nobody means, in every option of a number: exit code 2 and one line."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

ODD = ("1e-320", "1e-320%", "-0.0", "nan", "0.9999999999999999", "9" * 400)

OPTIONS = {
    "calibrate": [
        *("--risk", "--frr", "--trr", "--coverage", "--joint", "--cost", "--threshold")
    ],
    "calibrate --risk 0.3": [
        *(
            "--coverage",
            "--confidence",
            "--label-noise",
            "--temperature",
            "--shortlist",
        ),
        *("--memory", "--seed"),
    ],
    "calibrate --frr 0.1 --shortlist 0.9": ["--shortlist-size"],
    "calibrate --no-labels --risk 0.3": ["--accuracy"],
    "screen": ["--gamma", "--threshold"],
    "screen --threshold 0": ["--temperature", "--memory"],
    "check --gate gate.json": ["--label-noise", "--level", "--draw", "--deadline"],
    "check --gate gate.json --state s.json": ["--review-accepted", "--review-rejected"],
    "diagnose": ["--confidence", "--temperature", "--memory"],
    "compare": ["--confidence", "--seed", "--memory"],
}
CASES = [(verb, option) for verb, options in OPTIONS.items() for option in options]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(300, 3))
    label = np.where(rng.random(300) < 0.9, logits.argmax(1), 0)
    table = {f"logit_{i}": logits[:, i] for i in range(3)}
    pl.DataFrame({**table, "label": label}).write_csv(tmp_path / "rows.csv")
    td.Gate(0.0, score="alpha").save(tmp_path / "gate.json")
    return tmp_path


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("verb", "option"), CASES)
def test_odd_numbers_are_accepted_or_refused_in_one_line(verb, option, folder, run):
    name, *more = verb.split()
    files = ["rows.csv"] * (1 + (name == "compare"))
    out = ["-o", "out.json", "--allow-odd-labels"] if name == "calibrate" else []
    for value in ODD:
        completed = run(name, *files, *more, *out, option, value, cwd=folder)
        # 3: nothing is written, as the gate would accept all or reject all
        assert completed.returncode in (0, 1, 2, 3), (value, completed.stderr)
        assert "Traceback" not in completed.stderr
        usage = completed.stderr.startswith("Usage")  # not a number at all
        if completed.returncode >= 2 and not usage:
            assert completed.stderr.count("\n") == 1, value
        assert "No such option" not in completed.stderr
