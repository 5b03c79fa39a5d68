"""Exported rows are those decided, and the library's commands read them."""

import io
import json

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from service.house import NAMES, draw_rows

import trustdoctor as td
from trustdoctor.service import rows as rows_module


def export(served, query=""):
    answer = served.get(f"/v1/export{query}")
    assert answer.status == 200, answer.content
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    return pl.read_parquet(io.BytesIO(answer.content))


def decide(served, rows, start=0, **more):
    n = len(rows)
    ids = [f"é{at}" for at in range(start, start + n)]
    body = {"ids": ids, "logits": np.asarray(rows.logits, float).tolist()}
    return served.decide(body | more)["rows"]


@pytest.mark.parametrize("names", [None, NAMES], ids=["numbers", "names"])
def test_rows_labels_and_logits(serve, names):
    rows = draw_rows(120, 5, names=names)
    gate = td.calibrate(draw_rows(2000, 1, names=names), score="alpha", frr=0.1)
    served = serve(gate, review=(1.0, 0.5))
    teams = [f"t{at % 3}" for at in range(120)]
    decisions = decide(served, rows, groups=teams)
    labels = rows.labels.tolist() if names is None else [names[k] for k in rows.labels]
    served.label(*({"id": f"é{at}", "label": labels[at]} for at in range(0, 120, 2)))
    served.label({"id": "é1", "correct": False}, {"id": "é3", "cannot_say": True})
    table = export(served)
    assert table["id"].to_list() == [decision["id"] for decision in decisions]
    for column, key in (
        ("predicted", "predicted"),
        ("doubt", "doubt"),
        ("accepted", "accepted"),
        ("reviewed", "review"),
        ("version", "version"),
    ):
        assert table[column].to_list() == [decision[key] for decision in decisions]
    assert table["group"].to_list() == teams
    assert table["label"].to_list()[::2] == labels[::2]
    assert table["label"].to_list()[1::2] == [None] * 60
    right = [
        decision["predicted"] == label
        for decision, label in zip(decisions, labels, strict=True)
    ]
    assert table["correct"].to_list()[::2] == right[::2]
    assert table["correct"].to_list()[1:4:2] == [False, None]
    ends = names or range(4)
    logits = table.select([f"logit_{end}" for end in ends]).to_numpy()
    assert logits.tolist() == np.asarray(rows.logits, float).tolist()


def test_commands_read_it(serve, run, tmp_path):
    gate = td.calibrate(draw_rows(2000, 1, names=NAMES), score="alpha", frr=0.1)
    served = serve(gate, review=(1.0, 1.0))
    rows = draw_rows(600, 5, names=NAMES)
    decide(served, rows)
    labels = [NAMES[k] for k in rows.labels]
    served.label(*({"id": f"é{at}", "label": label} for at, label in enumerate(labels)))
    path = tmp_path / "decisions.parquet"
    path.write_bytes(served.get("/v1/export").content)
    read = td.read(path)
    np.testing.assert_array_equal(read.logits, rows.logits)
    assert read.labels.tolist() == rows.labels.tolist()
    completed = run("diagnose", path)
    assert completed.returncode == 0, completed.stderr
    out = tmp_path / "gate.json"
    completed = run(
        "calibrate", path, "--score", "alpha", "--frr", "0.1", "--output", out
    )
    assert completed.returncode == 0, completed.stderr
    assert (
        td.Gate.load(out).threshold
        == td.calibrate(rows, score="alpha", frr=0.1).threshold
    )


@pytest.mark.parametrize("kind", ["probs", "topk", "confidence", "doubt"])
@pytest.mark.sampled(2)
def test_other_kinds(serve, kind, run, tmp_path):
    rows = draw_rows(300, 5)
    probs = np.exp(rows.logits) / np.exp(rows.logits).sum(1, keepdims=True)
    sure, right = probs.max(1), rows.predicted == rows.labels
    if kind in ("confidence", "doubt"):
        value = sure if kind == "confidence" else 1 - sure
        make = getattr(td.Predictions, f"from_{kind}")
        gate = td.calibrate(make(value, right), score=kind, risk=0.3)
        predicted = rows.predicted.tolist()
        body = {kind: value.tolist(), "predicted": predicted}
    else:
        gate = td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.3)
        order = np.argsort(-probs, 1)[:, :2]
        best = np.take_along_axis(probs, order, 1).tolist()
        topk = {"classes": order.tolist(), "probs": best}
        body = {"probs": probs.tolist()} if kind == "probs" else {"topk": topk}
    served = serve(gate, review=(1.0, 1.0))
    served.decide(body | {"ids": list(range(300))})
    served.label(*({"id": at, "label": int(k)} for at, k in enumerate(rows.labels)))
    table = export(served)
    if kind == "probs":
        assert table.select("^prob_.*$").to_numpy().tolist() == probs.tolist()
    elif kind == "topk":
        assert table["topk_probs"].to_list() == best
        classes = table["topk_classes"].to_list()
        numbers = [list(map(int, row_classes)) for row_classes in classes]
        assert numbers == order.tolist()
    else:
        assert table[kind].to_list() == value.tolist()
    assert table["correct"].to_list() == right.tolist()
    path = tmp_path / "decisions.parquet"
    table.write_parquet(path)
    sure = "doubt" if kind == "doubt" else "confidence"
    named = () if kind == "probs" else (f"--{sure}", sure, "--correct", "correct")
    completed = run("diagnose", path, *named)
    assert completed.returncode == 0, completed.stderr


def test_pieces_make_one_file(serve, gate, monkeypatch):
    served = serve(gate, review=(1.0, 0.5))
    decide(served, draw_rows(40, 5))
    served.label({"id": "é35", "label": 2})
    table = export(served)
    monkeypatch.setattr(rows_module, "EXPORT_BATCH", 7)
    assert_frame_equal(export(served), table)


def test_classes_in_another_order(serve):
    swapped = ("dog", "cat", "eel", "fox")
    first = td.calibrate(draw_rows(2000, 1, names=NAMES), score="alpha", frr=0.1)
    second = td.calibrate(draw_rows(2000, 1, names=swapped), score="alpha", frr=0.1)
    served = serve(first)
    rows = draw_rows(10, 5)
    decide(served, rows)
    served.post_ok("/v1/gates", json.loads(second.to_json()))
    served.post_ok("/v1/gates/2/promote")
    decide(served, rows, 10)
    response = served.get("/v1/export")
    assert response.status == 409
    assert "version=" in response.detail
    logits = np.asarray(rows.logits, float)
    for version, names in ((1, NAMES), (2, swapped)):
        table = export(served, f"?version={version}")
        assert len(table) == 10
        assert table.select([f"logit_{n}" for n in names]).to_numpy().tolist() == (
            logits.tolist()
        )


def test_several_kinds(served):
    rows = draw_rows(10, 5)
    decide(served, rows)
    served.decide({"id": "p", "probs": [0.4, 0.3, 0.2, 0.1]})
    assert served.get("/v1/export").status == 409
    assert len(export(served, "?kind=logits")) == 10
    assert len(export(served, "?kind=probs")) == 1


def test_since_and_until(served):
    decide(served, draw_rows(30, 5))
    served.change("UPDATE rows SET decided_at = 1000000000 + position * 86400")
    # position 2 is the first row: 2001-09-11
    table = export(served, "?since=2001-09-20&until=2001-09-25T00:00:00Z")
    assert table["at"].min().isoformat() >= "2001-09-20"
    assert table["at"].max().isoformat() < "2001-09-25"
    assert len(table) == 5


def test_forgotten_rows_are_left_out(served):
    decide(served, draw_rows(10, 5))
    served.ask("DELETE", "/v1/rows/é3")
    table = export(served)
    assert "é3" not in table["id"].to_list()
    assert len(table) == 9


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?version=9", 404),
        ("?version=x", (400, 404)),
        ("?version=%C2%B2", (400, 404)),
        ("?version=99999999999999999999", (400, 404)),
        ("?kind=%00", 400),
        ("?kind=words", 400),
        ("?since=soon", 400),
        ("?since=2030-01-01", 404),
        ("?rows=5", 400),
    ],
)
def test_odd_questions(served, query, status):
    decide(served, draw_rows(3, 5))
    answer = served.get(f"/v1/export{query}")
    assert answer.status in (status if isinstance(status, tuple) else (status,))
    assert answer.detail


def test_no_file_is_left_behind(served, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("exported")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert served.get("/v1/export").status == 404
    decide(served, draw_rows(3, 5))
    export(served)
    assert list(folder.iterdir()) == []
