"""Arrow batches, as engines hand them out."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.adapters.arrow import Decider
from trustdoctor.errors import InputError
from trustdoctor.gates.shortlists import ListRule

GATE = td.Gate(-0.5, score="alpha")
Z = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)


def tables():
    columns = {f"logit_{j}": Z[:, j] for j in range(3)}
    numbers = {"id": np.arange(len(Z)), **columns}
    flat = pa.array(Z.ravel())
    fixed = pa.FixedSizeListArray.from_arrays(flat, 3)
    lists = pa.ListArray.from_arrays(np.arange(0, len(flat) + 1, 3), flat)
    return {
        "numbered": pa.table(numbers),
        "fixed lists": pa.table({"id": numbers["id"], "logits": fixed}),
        "lists": pa.table({"id": numbers["id"], "logits": lists}),
    }


@pytest.mark.parametrize("kind", ["numbered", "fixed lists", "lists"])
def test_batches_get_what_the_gate_decides(kind):
    table, decide = tables()[kind], Decider(GATE)
    expected = GATE.screen(td.Predictions.from_logits(Z))
    decided_table = decide(table)
    batches = list(decide.map(table.to_batches(max_chunksize=130)))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    for decided in (decided_table, pa.Table.from_batches(batches)):
        assert decided.schema.names == [*table.schema.names, "score", "accepted"]
        assert (decided["score"].to_numpy() == expected.doubts).all()
        assert (decided["accepted"].to_numpy() == expected.accepted).all()
        assert decided.select(table.schema.names).equals(table)


def test_an_empty_batch_keeps_its_columns():
    table = tables()["numbered"]
    empty = Decider(GATE)(table.slice(0, 0))
    assert empty.schema == Decider(GATE)(table).schema
    wide = pa.table({"logits": pa.array([[1.0, 2.0]], pa.list_(pa.float64()))})
    assert Decider(GATE)(wide.slice(0, 0)).schema == Decider(GATE)(wide).schema
    with pytest.raises(InputError, match="expected columns"):
        Decider(GATE)(pa.table({"a": pa.array([], pa.float32())}))


def test_mistakes_are_named():
    table = tables()["numbered"]
    with pytest.raises(InputError, match="names its score"):
        Decider(td.Gate(0.0))
    with pytest.raises(InputError, match="already have a column 'score'"):
        Decider(GATE)(table.append_column("score", pa.array(np.zeros(len(Z)))))
    with pytest.raises(InputError, match="expected columns"):
        Decider(GATE)(pa.table({"a": [1.0]}))
    renamed = table.rename_columns(["id", "z0", "z1", "z2"])
    assert Decider(GATE, logits="z")(renamed).num_columns == 6


def test_polars_speaks_it():
    import polars as pl

    frame = pl.from_arrow(tables()["numbered"])
    decided = pl.from_arrow(Decider(GATE)(frame.to_arrow()))
    screened = GATE.screen(td.Predictions.from_logits(Z))
    assert decided["accepted"].sum() == screened.accepted.sum()


def listed(max_size=None):
    """Every class of probability 0.25 or more, for half of the rows or so."""
    rule = ListRule(float(np.log(4)), 99)
    return replace(GATE, shortlist=td.Shortlist(0.9, rule, 3, max_size=max_size))


@pytest.mark.parametrize("kind", ["numbered", "fixed lists", "lists"])
def test_a_gate_with_lists_adds_them_as_text(kind):
    table, decide = tables()[kind], Decider(listed())
    p = softmax(Z.astype(np.float64), axis=1)
    expected = []
    for row, accepted in zip(p, GATE.screen(Z, kind="logits").accepted, strict=True):
        classes = [k for k in np.argsort(-row) if row[k] >= 0.25 or row[k] == row.max()]
        text = "full review" if len(classes) == 3 else " | ".join(map(str, classes))
        expected.append("" if accepted else text)
    assert {"", "full review", "2 | 0"} <= set(expected)
    decided_table = decide(table)
    batches = list(decide.map(table.to_batches(max_chunksize=130)))
    for decided in (decided_table, pa.Table.from_batches(batches)):
        names = [*table.schema.names, "score", "accepted", "shortlist"]
        assert decided.schema.names == names
        assert decided["shortlist"].to_pylist() == expected
        assert decided.select(names[:-1]).equals(Decider(GATE)(table))


def test_lists_name_the_classes():
    names = {"prob_cat": [0.5], "prob_a|b": [0.4], "prob_ox": [0.1]}
    decided = Decider(listed(max_size=2))(pa.table(names))
    assert decided["shortlist"].to_pylist() == [r"cat | a\|b"]


def test_lists_of_no_rows_are_text():
    for kind, table in tables().items():
        for rows in (table, *table.to_batches()[:1]):
            decide = Decider(listed())
            empty = decide(rows.slice(0, 0))
            assert empty.schema == decide(rows).schema, kind
            assert empty.schema.field("shortlist").type == pa.string()


def test_what_has_no_lists_is_refused():
    table = tables()["numbered"]
    named = table.append_column("shortlist", pa.array([""] * len(Z)))
    with pytest.raises(InputError, match="already have a column 'shortlist'"):
        Decider(listed())(named)
    assert Decider(GATE)(named).num_columns == 7
    with pytest.raises(InputError, match="expected rows of 3 classes"):
        Decider(listed())(table.drop_columns(["logit_2"]))
    answers = pa.table({"confidence": [0.9, 0.2]})
    gate = replace(listed(), score="confidence", threshold=-0.5)
    with pytest.raises(InputError, match="every class"):
        Decider(gate, confidence="confidence")(answers)
