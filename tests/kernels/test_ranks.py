import numpy as np
import pytest

from trustdoctor.kernels import _native, order, place, ranks, sort, split

KINDS = [
    "normal",
    "ties",
    "wide",
    "infinite",
    "zeros",
    "constant",
    "narrow",
    "clusters",
]


@pytest.fixture(params=["C", "numpy"])
def _implementation(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(_native, "available", False)


@pytest.fixture(params=[1, 3])
def _threads(request, monkeypatch):
    """Several threads, or one, however many processors there are."""
    monkeypatch.setattr(ranks, "cores", lambda: request.param)
    monkeypatch.setattr(ranks, "_THREAD_ROWS", 0)


def draw(kind, n, rng):
    return {
        "normal": lambda: rng.normal(size=n),
        "ties": lambda: rng.integers(-3, 3, n) * 1.0,
        "wide": lambda: rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n),
        "infinite": lambda: rng.choice([-np.inf, 0.5, 1.5, np.inf], n),
        "zeros": lambda: rng.choice([-0.0, 0.0, 1.0], n),
        "constant": lambda: np.full(n, 2.5),
        "narrow": lambda: 1 + 1e-14 * rng.integers(0, 40, n),
        "clusters": lambda: (
            rng.choice([-1e300, 1.0, 2.0], n) + 1e-12 * rng.normal(size=n)
        ),
    }[kind]()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_the_radix_sort_sorts(dtype, kind, rng):
    with np.errstate(over="ignore"):
        values = draw(kind, ranks._RADIX_ROWS + 17, rng).astype(dtype)
    assert np.array_equal(sort(values.copy()), np.sort(values))


@pytest.mark.usefixtures("_implementation", "_threads")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_is_that_of_a_stable_sort(dtype, kind, rng):
    with np.errstate(over="ignore"):
        values = draw(kind, ranks._RADIX_ROWS + 17, rng).astype(dtype)
    permutation = order(values)
    assert permutation.dtype == np.intp
    assert np.array_equal(permutation, np.argsort(values, kind="stable"))


@pytest.mark.parametrize("rows", [0, 1, 5, 65_535, 65_536])
def test_any_number_of_rows_has_an_order(rows, rng):
    values = rng.normal(size=2 * rows)[::2]
    assert np.array_equal(order(values), np.argsort(values, kind="stable"))


@pytest.mark.usefixtures("_implementation")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("step", [1, 2])
def test_values_are_split_in_their_order(dtype, share, step, rng):
    values = rng.normal(size=101).astype(dtype)[::step]
    marked = (rng.random(101) < share)[::step]
    no, yes = split(values, marked)
    assert no.tolist() == [
        v for v, is_in in zip(values, marked, strict=True) if not is_in
    ]
    assert yes.tolist() == [v for v, is_in in zip(values, marked, strict=True) if is_in]
    assert not np.shares_memory(no, values)


@pytest.mark.usefixtures("_implementation", "_threads")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "m"), [(0, 3), (3, 0), (1, 1), (500, 7), (7, 500), (999, 1000)]
)
@pytest.mark.sampled(3)
def test_values_are_placed_as_by_counting_all_pairs(dtype, kind, n, m, rng):
    with np.errstate(over="ignore"):
        first, second = (np.sort(draw(kind, k, rng).astype(dtype)) for k in (n, m))
    below, through = place(first, second)
    assert np.array_equal(below, (second < first[:, None]).sum(1))
    assert np.array_equal(through, (second <= first[:, None]).sum(1))


def test_placing_compares_scores_of_two_precisions_exactly():
    double = np.array([0.1, 0.5], np.float64)
    single = np.array([0.1, 0.5], np.float32)  # float32's 0.1 is above float64's
    below, through = place(double, single)
    assert (below.tolist(), through.tolist()) == ([0, 1], [0, 2])
