"""What a gate decided about rows, as an object of its own."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

P = td.Predictions.from_logits(
    [[4.0, 0.0], [0.1, 0.0], [0.0, 5.0]], class_names=["no", "yes"], ids=["a", "b", "c"]
)
GATE = td.Gate(-1.0, "beta")


def test_it_names_classes_and_says_which_rows_to_review():
    screened = GATE.screen(P)
    assert screened.predicted.tolist() == ["no", "no", "yes"]
    assert screened.accepted.tolist() == [True, False, True]
    assert screened.review.tolist() == [False, True, False]
    assert repr(screened) == "Screened(2 of 3 predictions accepted (66.7%))"
    assert len(screened) == 3
    with pytest.raises(TypeError):
        screened[0]


def test_the_table_has_a_row_per_prediction():
    table = GATE.screen(P).to_frame()
    assert isinstance(table, pl.DataFrame)
    assert table.columns == ["id", "predicted", "doubt", "accepted"]
    assert table["id"].to_list() == ["a", "b", "c"]
    assert table["doubt"].to_list() == td.beta(P).tolist()
    numbers = GATE.screen(P.logits, kind="logits")
    assert numbers.to_frame()["predicted"].to_list() == [0, 0, 1]
    answers = td.Predictions.from_confidence([0.9, 0.2])
    known_doubts = td.Gate(-0.5, "confidence").screen(answers)
    assert known_doubts.to_frame()["predicted"].to_list() == [None, None]


def test_a_cascade_adds_where_rows_go():
    small = np.array([[4.0, 0.0], [0.2, 0.0], [0.1, 0.0]])
    large = np.array([[4.0, 0.0], [0.0, 5.0], [0.0, 0.1]])
    cascade = td.Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0), "beta")
    decisions = cascade.screen({"small": small, "large": large})
    table = decisions.to_frame()
    assert table.columns == [
        *("predicted", "doubt", "accepted", "asked", "cost", "goes_to")
    ]
    assert table["goes_to"].to_list() == [None, None, "a person"]
    assert "of 3 predictions accepted" in repr(decisions)
    with pytest.raises(td.errors.InputError, match="in the order small, large"):
        cascade.screen({"large": large, "small": small})
    with pytest.raises(td.errors.InputError, match="names them itself"):
        cascade.screen({"small": small, "large": large}, names=["a", "b"])
