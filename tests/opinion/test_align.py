"""Rows of several stages: matched by id, or by position on request."""

import numpy as np
import pytest

from trustdoctor.errors import InputError
from trustdoctor.opinion.stages import align_stages
from trustdoctor.predictions import Predictions

N = 60
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, N)
SMALL, LARGE = RNG.normal(size=(2, N, 3))
IDS = np.arange(N)
ORDER = RNG.permutation(N)
ALL = np.arange(N)

from_logits = Predictions.from_logits


def logits_of(stages, k=1, rows=ALL):
    return stages.ask(k, rows).logits


def small():
    return from_logits(SMALL, LABELS, ids=IDS)


@pytest.mark.parametrize(
    "ids",
    [IDS, IDS.astype(str), IDS.astype(float), IDS.astype(object), IDS.astype(np.uint8),
     IDS.astype("S"), np.char.add(IDS.astype(str), " "),
     np.array([*map(str, IDS[:-1]), 59], object)],
    ids=lambda ids: f"{ids.dtype}",
)  # fmt: skip
def test_rows_are_matched_by_id_however_it_is_written(ids):
    stages = align_stages([small(), from_logits(LARGE[ORDER], ids=ids[ORDER])])
    assert np.array_equal(logits_of(stages), LARGE)
    assert np.array_equal(logits_of(stages, rows=ORDER[:7]), LARGE[ORDER[:7]])
    assert stages.labels.tolist() == LABELS.tolist()
    assert stages.ids.tolist() == IDS.astype(str).tolist()


def test_ids_that_are_text_stay_different():
    """'07' is not '7', and 'nan' is a name like any other."""
    ids = [f"{i:02}" for i in range(N)]
    stages = align_stages(
        [from_logits(SMALL, ids=ids), from_logits(LARGE[ORDER], ids=IDS[ORDER])]
    )
    with pytest.raises(InputError, match="not in stage 2, the first is id '00'"):
        stages.ask(1, ALL)
    assert np.array_equal(logits_of(stages, rows=ALL[10:]), LARGE[10:])
    named = np.array([*map(str, IDS[:-1]), "nan"])
    stages = align_stages(
        [from_logits(SMALL, ids=named), from_logits(LARGE[ORDER], ids=named[ORDER])]
    )
    assert np.array_equal(logits_of(stages), LARGE)


@pytest.mark.parametrize("missing", [np.nan, None, "", "  "], ids=repr)
def test_a_row_without_an_id_is_refused(missing):
    ids = IDS.astype(object).copy()
    ids[3] = missing
    p = from_logits(LARGE, ids=ids)
    for pair in ([small(), p], [p, small()]):
        with pytest.raises(InputError, match="an id for every row, row 3 has none"):
            align_stages(pair)


def test_an_id_that_comes_twice_is_refused():
    twice = np.where(IDS == 3, 4, IDS)
    for pair in (
        [small(), from_logits(LARGE, ids=twice)],
        [from_logits(LARGE, ids=twice), small()],
    ):
        with pytest.raises(InputError, match="every id once, '4' comes 2 times"):
            align_stages(pair)
    with pytest.raises(InputError, match="every id once, '4' comes 2 times"):
        align_stages([small(), np.asarray], data=LARGE, ids=twice)
    stages = align_stages([SMALL, LARGE], ids=IDS)
    assert stages.ids.tolist() == IDS.astype(str).tolist()


def test_a_later_stage_may_lack_rows_until_they_are_asked_about():
    stages = align_stages([small(), from_logits(LARGE[5:], ids=IDS[5:])])
    assert np.array_equal(logits_of(stages, rows=ALL[5:]), LARGE[5:])
    with pytest.raises(InputError, match="5 rows in doubt are not in stage 2"):
        stages.ask(1, ALL)
    with pytest.raises(InputError, match=r"1 row in doubt is not .* id '4'"):
        stages.ask(1, np.array([8, 4, 9]))
    with pytest.raises(InputError, match="5 are not in stage 2, the first is id '0'"):
        stages.require_rows(ALL)
    more = align_stages(
        [from_logits(SMALL[5:], ids=IDS[5:]), from_logits(LARGE, ids=IDS)]
    )
    assert np.array_equal(logits_of(more, rows=ALL[: N - 5]), LARGE[5:])
    with pytest.raises(InputError, match="5 are only in stage 2, the first is id '0'"):
        more.require_rows(ALL[: N - 5])


def test_rows_are_matched_by_position_only_on_request():
    bare = from_logits(LARGE)
    for pair in ([small(), bare], [bare, small()]):
        with pytest.raises(InputError, match=r"stage \d has none, so rows cannot be"):
            align_stages(pair)
    stages = align_stages([small(), bare], by_position=True)
    assert np.array_equal(logits_of(stages), LARGE)
    assert stages.ids.tolist() == IDS.astype(str).tolist()
    shuffled = from_logits(LARGE[ORDER], ids=IDS[ORDER])
    with pytest.raises(InputError, match="same order, as by_position says, but row"):
        align_stages([small(), shuffled], by_position=True)
    with pytest.raises(InputError, match="stage 1 has 60, stage 2 has 59"):
        align_stages([small(), from_logits(LARGE[1:])], by_position=True)
    assert align_stages([SMALL, LARGE]).ids is None


def test_models_combined_with_files_need_the_ids_of_their_rows():
    data = LARGE[ORDER]
    stages = align_stages([small(), np.asarray], data=data, ids=IDS[ORDER])
    assert np.array_equal(logits_of(stages, 0), SMALL[ORDER])
    assert np.array_equal(logits_of(stages, 1), data)
    with pytest.raises(InputError, match="Pass ids="):
        align_stages([small(), np.asarray], data=data)
    for rows, ids in ((data, IDS[:-10]), (data[:-10], IDS)):
        with pytest.raises(InputError, match="as many ids and rows of data"):
            align_stages([small(), np.asarray], data=rows, ids=ids)
    with pytest.raises(InputError, match="60 in stages, 50 in data"):
        align_stages([SMALL, np.asarray], data=data[:-10])
    with pytest.raises(InputError, match="one id per row"):
        align_stages([SMALL, LARGE], ids=IDS[:, None])
