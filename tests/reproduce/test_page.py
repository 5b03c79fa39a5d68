"""All experiments on one page, and the claims that head it."""

import json
import re

import numpy as np
import pytest

from trustdoctor.errors import InputError
from trustdoctor.metrics import Estimate
from trustdoctor.reproduce import (
    EXPERIMENTS,
    Options,
    Report,
    Table,
    instead,
    page,
    reproduce,
    write_readme,
)
from trustdoctor.reproduce.claims import claims
from trustdoctor.reproduce.models import mean_over, verdict
from trustdoctor.reproduce.table1 import COLUMNS

N = 900


def predictions(folder, name, *, classes, seed, copies=1):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(N, classes)).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (probs.cumsum(1) > rng.random((N, 1))).argmax(1)
    logits, labels = (np.tile(a[: N // copies].T, copies).T for a in (logits, labels))
    np.savez(folder / f"{name}-test.npz", logits=logits, labels=labels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    predictions(folder, "a-cifar10", classes=10, seed=1)
    predictions(folder, "b-cifar10", classes=10, seed=2)
    predictions(folder, "c-imdb", classes=2, seed=3, copies=3)
    return folder


@pytest.fixture
def few_parts(monkeypatch):
    parts_of_page = ("table1", "models", "instead", "histograms", "whitebox")
    monkeypatch.setattr(page, "PARTS", {k: page.PARTS[k] for k in parts_of_page})
    monkeypatch.setattr(instead, "SPLITS", 5)


@pytest.mark.usefixtures("few_parts")
def test_the_page_has_what_the_data_allow(folder, tmp_path):
    report = reproduce("all", Options(data=folder))
    assert [chapter.name for chapter in report.chapters] == [
        "table1",
        "models",
        "instead",
    ]
    lacks = " ".join(report.notes)
    assert "histograms was left out" in lacks
    assert "whitebox was left out: this runs a model on images" in lacks
    written = {path.name for path in report.write(tmp_path)}
    assert written == {"reproduction.md", "reproduction.json"}
    assert (tmp_path / "table1.md").exists()
    text = (tmp_path / "reproduction.md").read_text()
    claims_at, first, commands_at = (
        text.index(words)
        for words in ("Which of the paper's claims", "## Table 1", "## How this was")
    )
    assert claims_at < first < commands_at
    links = re.findall(r"\]\((\S+\.svg)\)", text)
    assert links
    assert all((tmp_path / link).exists() for link in links)
    assert "`trustdoctor reproduce table1 --data DIR --out DIR`:" in text[commands_at:]
    assert "- processor: " in text[commands_at:]
    assert json.loads((tmp_path / "reproduction.json").read_text())["chapters"]


def test_alpha_is_set_against_sr_over_the_models(folder):
    table, repeats = reproduce("models", Options(data=folder)).tables
    a, b, binary, over = table.rows
    assert [row[0] for row in table.rows] == [
        "CIFAR-10, a",
        "CIFAR-10, b",
        "IMDb, c *",
        "all models (2)",
    ]
    assert binary[3] == Estimate(0.0, 0.0, 0.0)
    assert over[3].value == pytest.approx((a[3].value + b[3].value) / 2)
    assert repeats.rows[0][:3] == ("IMDb, c", N, N // 3)
    assert repeats.rows[0][3].value == pytest.approx(repeats.rows[0][4].value)


def test_a_mean_over_models_has_its_t_interval():
    estimate = mean_over([1.0, 2.0, 3.0])
    assert estimate.value == 2
    assert estimate.high - 2 == pytest.approx(4.303 / np.sqrt(3), abs=1e-3)
    words = [verdict(Estimate(v, v - 1, v + 1)) for v in (-2.0, 0.5, 2.0)]
    assert words == ["worse", "alike", "better"]
    assert verdict(Estimate(None)) == "-"


@pytest.mark.more
def test_the_promise_holds_and_each_method_is_judged_on_others(folder, monkeypatch):
    monkeypatch.setattr(instead, "SPLITS", 20)
    methods, promises = reproduce("instead", Options(data=folder)).tables
    assert {row[1] for row in methods.rows} == {"SR", "alpha", "tuned"}
    for sr, *other_rows in (methods.rows[i : i + 3] for i in (0, 3, 6)):
        for row in other_rows:
            gain = row[2].value - sr[2].value
            assert row[4].value == pytest.approx(gain, abs=1e-3), row[:2]
    for row in promises.rows:
        assert row[5] <= row[2]
        assert int(row[6].split()[0]) >= 15  # 18 but for the sample that judges
    with pytest.raises(InputError, match="--data DIR"):
        reproduce("instead")


def full(*rows):
    title = "CIFAR-10, densenet: 10,000 rows (the authors' own predictions), in %"
    return Table(title, COLUMNS, rows)


def report_of(*tables):
    return Report("table1", "", tables, "")


def test_claims_say_what_the_numbers_say():
    cells = [
        ("alpha", "TBB", 94.0, Estimate(94.2), 17.9, Estimate(17.9)),
        ("alpha", "PBB paper", 95.2, Estimate(95.2), 13.9, Estimate(13.9)),
        ("alpha", "PBB deployed", None, Estimate(93.9), None, Estimate(16.9)),
        ("beta", "TBB", 68.5, Estimate(94.1), 18.6, Estimate(17.9)),
        ("sr", "TBB", 93.8, Estimate(94.1), 18.2, Estimate(17.9)),
    ]
    claim_by_title = {
        row[0]: row for row in claims({"table1": report_of(full(*cells))}).rows
    }
    behind = claim_by_title["D_beta falls behind softmax response (Table 1)"]
    assert behind[2] == "the authors' own predictions: 94.10 and 94.10"
    helps = claim_by_title["Perturbing the input helps (PBB, Table 1)"]
    assert "CIFAR-10, densenet 17.9 / 13.9 / 16.9" in helps[2]
    assert claims({}).rows == ()


def test_the_folder_says_what_was_run(tmp_path):
    for name, command in (("roc", "one"), ("table1", "two"), ("roc", "three")):
        report = Report(name, "", (), "", notes=(f"read from {command}.npz.",))
        path = write_readme(tmp_path, report, f"trustdoctor {command}", 61.0)
    text = path.read_text()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == ["table1", "roc"]
    assert "trustdoctor one" not in text
    assert "- command: `trustdoctor three`\n- took: 61 s" in text
    assert "- read from two.npz." in text


def test_every_experiment_is_on_the_page():
    assert set(page.PARTS) == set(EXPERIMENTS) - {"all"}
