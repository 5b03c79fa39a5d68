"""The contract of scores over the whole registry, plain and fitted."""

import json
from dataclasses import fields
from itertools import combinations

import laws
import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.scores import same_ranking
from trustdoctor.scores.contract import NEEDS, GivenScore

CALLABLE = {n: s for n, s in td.SCORES.items() if "gradients" not in s.needs}


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
@pytest.mark.parametrize("law", laws.SCORE_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", CALLABLE)
def test_law(name, law, tmp_path):
    law(td.SCORES[name], tmp_path)


def test_scores_that_rank_alike_say_so():
    p = laws.rows(classes=5)
    plain = [s for s in CALLABLE.values() if isinstance(s, td.LogitScore)]
    orders = {s.name: np.argsort(s(p)).tolist() for s in plain}
    for first, second in combinations(plain, 2):
        alike = orders[first.name] == orders[second.name]
        assert same_ranking(first, second) == alike, (first.name, second.name)
    fitted = td.RelU.fit(p)
    assert same_ranking(fitted, fitted)
    assert not same_ranking(fitted, td.SCORES["msp"])


def test_every_entry_says_what_it_is():
    for name, entry in td.SCORES.items():
        assert entry.name == name
        assert entry.needs
        assert entry.needs <= set(NEEDS)
        assert entry.laws <= {"permutation", "shift", "direction"}
        assert entry.scale in ("odds", "log", "none")
        assert entry.reference or isinstance(entry, GivenScore)


@pytest.mark.parametrize("name", ["rel_u", "trust_score", "mahalanobis"])
def test_a_declared_exception_to_permutation_is_real(name):
    p = laws.rows()
    score = td.SCORES[name].fit(p, **td.SCORES[name].fit_options[-1])
    if name == "mahalanobis":
        score = td.Mahalanobis.fit(p, space="logits")
    turned = laws.with_logits(p, p.logits[:, ::-1])
    assert (np.abs(score(turned) - score(p)) > 1e-6).any()


def test_gradients_need_the_model():
    with pytest.raises(InputError, match="needs the model's gradients"):
        td.SCORES["odin"](laws.rows())
    with pytest.raises(InputError, match="needs the model's gradients"):
        td.calibrate(laws.rows(), score="odin", frr=0.1)


def test_a_name_is_taken_once():
    with pytest.raises(InputError, match="is taken by a score"):
        td.register(td.SCORES["alpha"])
    odd = td.LogitScore("odd", td.alpha, frozenset({"probs"}), frozenset({"symmetry"}))
    with pytest.raises(InputError, match="expected laws out of"):
        td.register(odd)
    odd = td.LogitScore("odd", td.alpha, frozenset({"luck"}), frozenset())
    with pytest.raises(InputError, match="expected needs out of"):
        td.register(odd)
    assert "odd" not in td.SCORES


def test_names_of_fitted_scores_say_how_to_fit_them():
    with pytest.raises(InputError, match=r"RelU.fit\(predictions\).*compare -o FILE"):
        td.calibrate(laws.rows(), score="rel_u", frr=0.1)
    with pytest.raises(InputError, match="expected a score out of alpha, beta"):
        td.calibrate(laws.rows(), score="beauty", frr=0.1)
    with pytest.raises(InputError, match="takes no temperature"):
        td.calibrate(
            laws.rows(), score=td.RelU.fit(laws.rows()), temperature=2.0, frr=0.1
        )


@pytest.mark.parametrize("name", [n for n, s in CALLABLE.items() if laws.is_fitted(s)])
def test_tampered_states_are_refused(name):
    entry = td.SCORES[name]
    score = entry.fit(laws.rows())
    arrays, plain = score.to_state()
    assert entry.from_state(arrays, plain).digest == score.digest
    first = fields(entry)[0].name  # it has no default
    incomplete = [
        {k: v for k, v in fields.items() if k != first} for fields in (arrays, plain)
    ]
    for changed in ((arrays, {**plain, "more": 1}), incomplete):
        with pytest.raises(FileError, match=r"missing|unknown"):
            entry.from_state(*changed)
    for key, array in arrays.items():
        with pytest.raises((InputError, TypeError, ValueError)):
            entry.from_state({**arrays, key: array.ravel()[:1] * np.nan}, plain)
    for key, value in plain.items():
        if isinstance(value, float):
            with pytest.raises((InputError, TypeError, ValueError)):
                entry.from_state(arrays, {**plain, key: float("nan")})


def test_files_of_unregistered_scores_are_refused(tmp_path):
    from safetensors.numpy import save_file

    header = {"trustdoctor": "score", "schema": 2, "name": "beauty", "plain": {}}
    meta = {"json": json.dumps(header)}
    save_file({"matrix": np.eye(4)}, tmp_path / "odd.safetensors", meta)
    with pytest.raises(FileError, match="not registered"):
        td.load_score(tmp_path / "odd.safetensors")


def test_objects_that_are_not_scores_are_not_registered():
    class UndescribedScore(td.FittedScore):
        name = "bare"

    for odd, match in (
        ("x", "expected a LogitScore or a class"),
        (td.RelU.fit(laws.rows()), "expected a LogitScore or a class"),
        (UndescribedScore, "says its needs"),
    ):
        with pytest.raises(InputError, match=match):
            td.register(odd)
