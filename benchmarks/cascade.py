"""What cascades cost, and whether they keep their promise: fills docs/cascades.md.

    python benchmarks/cascade.py SHARED [--only NAME] [--out docs/cascades.md]
                                 [--peers PYTHON] [--quick]

SHARED holds predictions/, predictions/public/ and data/imdb.parquet. ``--only`` runs
some parts: promises, rows, accuracy, text, stages, fallback (several with commas
between). ``--peers`` is an interpreter that has scikit-fallback; without it that part
is left out. ``--quick`` runs all in a small form and writes nothing. Seeds are fixed.
The words are those of docs/cascades.md; what stands between ``<!-- made: NAME -->`` and
``<!-- end -->`` there is made here.

A promise concerns the distribution that rows come from. So beside splits, whose other
half has errors of its own, rows are drawn with replacement: then the whole file is that
distribution, and it is known whether the promise is broken.
"""

import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
from pages import run, table
from peers import ask

import trustdoctor as td
from trustdoctor.errors import NoPolicyError

ROOT = Path(__file__).parents[1]
PAGE, TITLE = ROOT / "docs" / "cascades.md", "A cascade: small, large, a person"
COSTS = (0, 1, 10)
SURE = 0.9
MOBILE, REP = "public/mobilenetv2_x1_0-{}-test", "public/repvgg_a1-{}-test"
FIRST, TEN, HUNDRED = (
    "ResNet-20, DenseNet",
    "MobileNetV2, RepVGG-A1, CIFAR-10",
    "MobileNetV2, RepVGG-A1, CIFAR-100",
)
PAIRS = {
    FIRST: ("resnet-20-cifar10-test", "densenet-bc-100-12-cifar10-test"),
    TEN: (MOBILE.format("cifar10"), REP.format("cifar10")),
    HUNDRED: (MOBILE.format("cifar100"), REP.format("cifar100")),
}
CELLS = [
    (FIRST, "risk", 0.05),
    (FIRST, "joint", 0.05),
    (FIRST, "trr", 0.95),
    (TEN, "risk", 0.05),
    (TEN, "risk", 0.02),
    (HUNDRED, "risk", 0.1),
    (HUNDRED, "risk", 0.05),
]
ROWS = 5000
SMALL, LARGE, BOTH = "small alone", "large alone", "both asked about all rows"
CASCADE, OWN = "cascade", "cascade, combine=own"


@cache
def read_pair(shared, pair):
    """Return what two models said, and both together."""
    said = [td.read(shared / "predictions" / f"{name}.npz") for name in PAIRS[pair]]
    return (*said, together(*said))


def together(*said):
    """Return the mean of what models said, asked about all rows."""
    names = tuple(f"stage {k}" for k in range(len(said)))
    ends = (-math.inf,) * (len(said) - 1) + (math.inf,)
    every = td.Cascade(names, ends, (0,) * len(said) + (1,))
    return every.screen(said, by_position=True).predictions


def rates(accepted, wrong):
    """Return what promises bound."""
    seen = (accepted & wrong).sum()
    return {
        "risk": seen / max(1, accepted.sum()),
        "joint": seen / len(wrong),
        "trr": 1 - seen / max(1, wrong.sum()),
    }


def is_broken(accepted, wrong, promise):
    ((name, value),) = promise.items()
    rate = rates(accepted, wrong)[name]
    return rate < value - 1e-12 if name == "trr" else rate > value + 1e-12


def judge_alone(p, rows, new, promise, cost):
    """Calibrate one model by itself; return what `HEAD` says, on new rows."""
    gate = td.calibrate(p[rows], score="alpha", confidence=SURE, **promise)
    accepted, wrong = gate.screen(p[new]).accepted, p[new].errors
    person = 1 - accepted.mean()
    broken = is_broken(accepted, wrong, promise)
    return broken, cost + COSTS[-1] * person, person, float(cost > 0), 0.0


def judge_cascade(stages, rows, new, promise, combine="average"):
    """Calibrate a cascade; return what `HEAD` says, on new rows."""
    costs = (*range(len(stages)), COSTS[-1])
    try:
        cascade = td.Cascade.calibrate(
            [p[rows] for p in stages],
            costs=costs,
            confidence=SURE,
            combine=combine,
            by_position=True,
            **promise,
        )
    except NoPolicyError:  # a person looks at all rows
        return 0.0, COSTS[-1], 1.0, 0.0, 1.0
    done = cascade.screen([p[new] for p in stages], by_position=True)
    broken = is_broken(done.accepted, done.predicted != stages[0][new].labels, promise)
    calls = (done.passes > 1).mean()
    return broken, done.costs.mean(), (~done.accepted).mean(), calls, 0.0


def draw(seed, size, rows, *, again):
    """Return calibration rows, and rows that judge: drawn again, the whole file."""
    rng = np.random.default_rng(seed)
    if again:
        return rng.integers(0, size, rows), np.arange(size)
    order = rng.permutation(size)
    return order[:rows], order[rows:]


def judge_all(stages, rows, new, promise, ways):
    """Judge each way to decide about the same rows."""
    small, large, both = stages
    found = {
        SMALL: lambda: judge_alone(small, rows, new, promise, COSTS[0]),
        LARGE: lambda: judge_alone(large, rows, new, promise, COSTS[1]),
        BOTH: lambda: judge_alone(both, rows, new, promise, COSTS[1]),
        CASCADE: lambda: judge_cascade([small, large], rows, new, promise),
        OWN: lambda: judge_cascade([small, large], rows, new, promise, "own"),
    }
    return [found[way]() for way in ways]


def promise_cell(task):
    """Return lines of `judge_all` over splits, or over rows drawn with replacement."""
    stages, promise, rows, (many, again), ways = task
    if isinstance(stages[0], Path):
        stages = read_pair(*stages)
    out = []
    for seed in range(many):
        first, new = draw(seed, len(stages[0]), rows, again=again)
        out.append(judge_all(stages, first, new, promise, ways))
    return np.array(out, float)


HEAD = ["cost", "to a person, %", "large calls, %", "broken on the other rows, %"]
HEAD += ["broken, rows drawn again, %", "no policy, %"]


def shown(values, digits=2):
    """Return the mean over independent runs, with its 95% interval."""
    half = 1.96 * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def promise_line(once, again):
    """Return the columns of `HEAD`."""
    broken, _, person, calls, none = 100 * once.mean(0)
    shares = f"{person:.1f}", f"{calls:.1f}", f"{broken:.1f}"
    truth = f"{100 * again[:, 0].mean():.1f}"
    return [shown(once[:, 1]), *shares, truth, f"{none:.1f}"]


def too_often(broken):
    """Whether a promise is broken more often than it may be, chance apart."""
    spread = 3 * math.sqrt(SURE * (1 - SURE) / len(broken))
    return broken.mean() > 1 - SURE + spread


def promise_words(promise):
    ((name, value),) = promise.items()
    return f"{name} {value:.0%}"


def promises(pool, given):
    """Measure what a promise costs by each way, and how often it is broken."""
    once, again = (6, (6, 6)) if given.quick else (200, (400, 200))
    ways = dict.fromkeys(CELLS, (SMALL, LARGE, BOTH, CASCADE))
    ways[CELLS[0]] += (OWN,)
    tasks = [
        ((given.shared, pair), {name: value}, ROWS, how, ways[pair, name, value])
        for k, (pair, name, value) in enumerate(CELLS)
        for how in ((again[k > 0], True), (once, False))
    ]
    found = pool.map(promise_cell, tasks, 1)
    lines, bad = [], []
    for k, (pair, name, value) in enumerate(CELLS):
        words = promise_words({name: value})
        for i, way in enumerate(ways[pair, name, value]):
            drawn, split = (own[:, i] for own in found[2 * k : 2 * k + 2])
            lines.append([pair, words, way, *promise_line(split, drawn)])
            if too_often(drawn[:, 0]):
                bad.append(f"{pair}, {words}, {way}: broken {drawn[:, 0].mean():.1%}")
    cost = found[1][:, ways[CELLS[0]].index(CASCADE), 1].mean()
    bad += [f"{FIRST}: cost {cost:.2f}"] if cost > 1.45 else []
    made = table(["models", "promise", "who decides", *HEAD], lines)
    return {"promises": f"{made}\n\n{split_words(once, again)}"}, bad


def split_words(once, again):
    first, others = again
    return (
        f"{once} splits of {ROWS:,} rows that calibrate and {ROWS:,} others. Rows "
        f"drawn again: {first} times (first promise) or {others} times {ROWS:,} rows "
        "from all, with replacement, which are the truth then. A large call costs "
        f"{COSTS[1]}, a person {COSTS[2]}. At most {1 - SURE:.0%} may be broken where "
        "rows are drawn again. The other half of a split has errors of its own: a rule "
        "that just keeps its promise is seen to break it in about 16 to 18% of them. ± "
        "is the 95% interval over splits."
    )


def rows_part(pool, given):
    """Measure what few calibration rows cost."""
    sizes, ways = (200, 500, 1000, 2000, 5000), (SMALL, CASCADE)
    once = 6 if given.quick else 200
    tasks = [
        ((given.shared, FIRST), {"risk": 0.05}, n, (once, False), ways) for n in sizes
    ]
    found = pool.map(promise_cell, tasks[::-1], 1)[::-1]
    head = ["rows", "cost, small alone", "cost, cascade", "cascade less small"]
    head += ["no policy, %"]
    lines = []
    for n, own in zip(sizes, found, strict=True):
        costs = own[:, :, 1]
        less, none = costs[:, 1] - costs[:, 0], 100 * own[:, 1, 4].mean()
        every = (costs[:, 0], costs[:, 1], less)
        lines.append([f"{n:,}", *map(shown, every), f"{none:.1f}"])
    words = f"{FIRST}, risk 5%, {once} splits. Where no policy passes, a person costs "
    words += f"{COSTS[-1]} for every row."
    return {"rows": f"{table(head, lines)}\n\n{words}"}, []


SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.5, 1)


def curve(small, second):
    """Return who is right, the most doubtful row of the small model first."""
    order = np.argsort(-td.alpha(small), kind="stable")
    return [~p.errors[order] for p in (small, second)]


def by_share(first, second, weights, shares):
    """Return the accuracy where the second answers so many of the rows."""
    before, gain = weights * first, weights * (second.astype(int) - first)
    ends = np.searchsorted(np.cumsum(weights), np.round(shares * weights.sum()))
    summed = np.append(0, np.cumsum(gain))
    at = np.where(shares > 0, np.minimum(ends + 1, len(first)), 0)
    return (before.sum() + summed[at]) / weights.sum()


def least_share(small, large, second, draws=500):
    """Return the share of calls that reaches the large model's accuracy, its interval.

    By paired bootstrap over the rows; nan where no share does.
    """
    first, then = curve(small, second)
    alone = curve(small, large)[1]
    shares, n = np.arange(0, 1.001, 0.01), len(first)
    rng, found = np.random.default_rng(0), []
    for k in range(draws + 1):
        weights = rng.multinomial(n, np.full(n, 1 / n)) if k else np.ones(n, int)
        reached = by_share(first, then, weights, shares)
        wanted = (weights * alone).sum() / n
        good = np.flatnonzero(reached >= wanted - 1e-12)
        found.append(shares[good[0]] if len(good) else np.nan)
    return found[0], *np.nanquantile([1.01 if f != f else f for f in found[1:]], ENDS)


ENDS = (0.025, 0.975)


def check_curve(small, large, combine, wanted):
    """Hold a cascade made by hand against the curve, at each of `SHARES`."""
    ranked = np.sort(td.alpha(small))
    for share, accuracy in zip(SHARES, wanted, strict=True):
        last = len(small) - round(share * len(small)) - 1
        at = float(ranked[last]) if last >= 0 else -math.inf
        hand = td.Cascade(("a", "b"), (at, math.inf), COSTS, combine=combine)
        done = hand.screen([small, large], by_position=True)
        tied = (ranked == at).sum() / len(small)
        found = (done.predicted == small.labels).mean()
        assert abs(found - accuracy) <= tied, (share, found, accuracy)


def share_words(found):
    """Return a share of calls with its interval, in percent."""
    if found[0] != found[0]:
        return "none does"
    low, high = (f"{100 * x:.0f}" if x <= 1 else "none" for x in found[1:])
    return f"{100 * found[0]:.0f} [{low}, {high}]"


def accuracy_lines(words, small, large):
    """Return lines of accuracy by share of calls, averaged and by the large one."""
    lines = []
    for combine, second in (("average", together(small, large)), ("own", large)):
        first, then = curve(small, second)
        found = by_share(first, then, np.ones(len(first), int), np.array(SHARES))
        check_curve(small, large, combine, found)
        least = least_share(small, large, second)
        alone = f"{100 * (1 - large.errors.mean()):.2f}"
        shown_ = [f"{100 * x:.2f}" for x in found]
        lines.append([words, combine, *shown_, alone, share_words(least)])
    return lines


ACCURACY = ["models", "combine", *(f"{100 * s:.0f}% calls" for s in SHARES)]
ACCURACY += ["large alone", "share that reaches it, %"]


def accuracy_pair(task):
    shared, pair = task
    small, large, _ = read_pair(shared, pair)
    return accuracy_lines(pair, small, large)


def accuracy(pool, given):
    """Measure accuracy without rejection, by the share of large calls."""
    found = pool.map(accuracy_pair, [(given.shared, pair) for pair in PAIRS], 1)
    reached = float(found[0][0][2 + SHARES.index(0.2)])
    bad = [f"{FIRST}: {reached} at 20%"] if reached < 90.6 else []
    made = table(ACCURACY, [line for lines in found for line in lines])
    return {"accuracy": made}, bad


def train_words(shared):
    """Return what naive Bayes and logistic regression on words say of the reviews."""
    import polars as pl
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB

    every = pl.read_parquet(shared / "data" / "imdb.parquet")
    train, test = (every.filter(pl.col("split") == s) for s in ("train", "test"))
    truth, labels = train["label"].to_numpy(), test["label"].to_numpy()
    models = {
        "naive Bayes": (
            CountVectorizer(binary=True, min_df=2, ngram_range=(1, 2)),
            MultinomialNB(),
        ),
        "logistic regression": (
            TfidfVectorizer(min_df=2, sublinear_tf=True),
            LogisticRegression(max_iter=500),
        ),
    }
    said = {}
    for name, (count, model) in models.items():
        model.fit(count.fit_transform(train["text"].to_list()), truth)
        logits = model.predict_log_proba(count.transform(test["text"].to_list()))
        said[name] = td.Predictions.from_logits(logits, labels)
    return said


@cache
def texts(shared):
    """Return what three models say of the IMDb reviews."""
    large = td.read(shared / "predictions" / "minilm-imdb-test.npz")
    said = train_words(shared)
    assert all((p.labels == large.labels).all() for p in said.values())
    return said, large


def text(pool, given):
    """Measure cascades of text classifiers."""
    said, large = texts(given.shared)
    pairs = {f"{name}, MiniLM": (p, large) for name, p in said.items()}
    tasks = [(words, *pair) for words, pair in pairs.items()]
    curves = pool.starmap(accuracy_lines, tasks, 1)
    once, again = (6, 6) if given.quick else (100, 100)
    ways, promise = (SMALL, LARGE, BOTH, CASCADE, OWN), {"risk": 0.05}
    asked = [
        ((*pair, together(*pair)), promise, ROWS, how, ways)
        for pair in pairs.values()
        for how in ((again, True), (once, False))
    ]
    found, lines, bad = pool.map(promise_cell, asked, 1), [], []
    for k, words in enumerate(pairs):
        for i, way in enumerate(ways):
            drawn, split = (own[:, i] for own in found[2 * k : 2 * k + 2])
            lines.append([words, way, *promise_line(split, drawn)])
            bad += [f"{words}, {way}: broken"] if too_often(drawn[:, 0]) else []
    made = table(ACCURACY, [line for lines in curves for line in lines])
    cost = table(["models", "who decides", *HEAD], lines)
    words = (
        f"Risk 5%, costs {', '.join(map(str, COSTS))}: {once} splits of {ROWS:,} rows "
        f"that calibrate and {len(large) - ROWS:,} others; {again} times {ROWS:,} rows "
        "drawn again."
    )
    return {"text": made, "text-costs": f"{cost}\n\n{words}"}, bad


VIEWS = "ResNet-20 at three views"
PUBLIC = "ResNet-20, MobileNetV2, RepVGG-A1 (public)"


def look(shared):
    """Return what ResNet-20 says of the test images, and of two views of them."""
    import io

    import polars as pl
    import torch
    from PIL import Image
    from safetensors.torch import load_file

    sys.path.insert(0, str(shared / "models"))
    import nets

    rows = pl.read_parquet(shared / "data" / "cifar10-test.parquet")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in rows["image"]])
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    net = nets.ResNet20().eval()
    net.load_state_dict(load_file(shared / "models" / "resnet-20.safetensors"))
    views, labels = td.image_views(5)[:2], rows["label"].to_numpy()
    with torch.no_grad():
        said = [
            torch.cat([net(view(part)) for part in ((x - mean) / std).split(500)])
            for view in (lambda part: part, *views)
        ]
    return [td.Predictions.from_logits(z.numpy(), labels) for z in said]


def read_public(shared):
    """Return what three public models say of CIFAR-10."""
    names = "resnet20", "mobilenetv2_x1_0", "repvgg_a1"
    folder = shared / "predictions" / "public"
    return [td.read(folder / f"{name}-cifar10-test.npz") for name in names]


def ask_all(cascade, stages):
    """Decide by what all models say of all rows: accepted, predicted, models asked."""
    n, last = len(stages[0]), len(stages) - 1
    passes, predicted = np.zeros(n, int), np.zeros(n, int)
    still, accepted = np.ones(n, bool), np.zeros(n, bool)
    for k, threshold in enumerate(cascade.thresholds):
        if math.inf == -max(cascade.thresholds[k:]):
            break  # none after it stops a row
        p = together(*stages[: k + 1]) if k else stages[0]
        stop = still & (td.alpha(p) <= threshold) & (threshold > -math.inf)
        passes[still], predicted[still] = k + 1, p.predicted[still]
        accepted, still = accepted | stop, still & ~stop
    assert k <= last
    return accepted, predicted, passes


class Asked:
    """A model that remembers how many rows it was asked about."""

    def __init__(self, p):
        self.logits, self.rows = p.logits, 0

    def __call__(self, rows):
        """Answer about some rows, by their numbers."""
        rows = np.asarray(rows)
        self.rows += len(rows)
        return self.logits[rows]


def stage_cell(task):
    """Return whether a promise is broken, cost, persons, and rows asked per stage."""
    (stages, risk, costs), seeds = task
    out = []
    for seed in seeds:
        rows, new = draw(seed, len(stages[0]), ROWS, again=True)
        own = [p[rows] for p in stages]
        cascade = td.Cascade.calibrate(
            own, costs=costs, risk=risk, confidence=SURE, by_position=True
        )
        models = [Asked(p) for p in stages]
        done = cascade.screen(models, data=new)
        accepted, predicted, passes = ask_all(cascade, stages)
        lazily = done.accepted, done.predicted, done.passes
        for one, other in zip(lazily, (accepted, predicted, passes), strict=True):
            assert (one == other).all()
        assert [m.rows for m in models] == [(passes > k).sum() for k in range(len(own))]
        broken = is_broken(accepted, predicted != stages[0].labels, {"risk": risk})
        asked = [m.rows / len(new) for m in models]
        out.append([broken, done.costs.mean(), (~accepted).mean(), *asked])
    return np.array(out, float)


def stages_part(pool, given):
    """Measure cascades of three stages, and hold lazy answers against full ones."""
    many, person = 4 if given.quick else 200, COSTS[-1]
    sets = {
        PUBLIC: (read_public(given.shared), 0.02, (0, 1, 2, person)),
        VIEWS: (look(given.shared), 0.05, (0.1, 0.1, 0.1, person)),
    }
    tasks = [(own, range(k, many, 2)) for own in sets.values() for k in (0, 1)]
    found, lines, bad = pool.map(stage_cell, tasks, 1), [], []
    for k, (words, (_, risk, costs)) in enumerate(sets.items()):
        own = np.concatenate(found[2 * k : 2 * k + 2])
        asked = ", ".join(f"{100 * x:.0f}" for x in own[:, 3:].mean(0))
        shares = [f"{100 * own[:, i].mean():.1f}" for i in (2, 0)]
        spent = ", ".join(map(str, costs))
        lines.append([words, spent, f"{risk:.0%}", shown(own[:, 1]), asked, *shares])
        bad += [f"{words}: broken"] if too_often(own[:, 0]) else []
    head = ["stages", "costs", "risk", "cost", "asked about, % of the rows"]
    made = table([*head, "to a person, %", "broken, rows drawn again, %"], lines)
    words = (
        f"{many} calibrations each on {ROWS:,} rows drawn again, judged on all. Each "
        "time models that are asked lazily decided as all models asked about all rows "
        "do, to the bit, and were asked about no other rows."
    )
    return {"stages": f"{made}\n\n{words}"}, bad


def train_made_up():
    """Return labels and probabilities of two scikit-learn models on made-up rows."""
    from sklearn.datasets import make_classification
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    x, y = make_classification(
        30_000,
        20,
        n_informative=12,
        n_redundant=4,
        n_classes=5,
        class_sep=1.6,
        flip_y=0.02,
        random_state=0,
    )
    models = LogisticRegression(max_iter=1000), HistGradientBoostingClassifier()
    for model in models:
        model.fit(x[:10_000], y[:10_000])
    said = [model.predict_proba(x[10_000:]) for model in models]
    return [td.Predictions.from_probs(p, y[10_000:]) for p in said]


def softmax(p):
    z = p.logits.astype(np.float64)
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def judge_picked(stages, new, picked, risk):
    """Judge thresholds of the largest probability, each model by itself."""
    if np.isnan(picked[0]):
        return 0.0, COSTS[-1], 1.0, 0.0, 1.0
    sure = [softmax(p)[new].max(1) for p in stages]
    first, stop = sure[0] >= picked[0], sure[1] >= picked[1]
    accepted = first | stop
    said = np.where(first, *(p.predicted[new] for p in stages))
    broken = is_broken(accepted, said != stages[0].labels[new], {"risk": risk})
    calls, person = 1 - first.mean(), 1 - accepted.mean()
    return broken, COSTS[1] * calls + COSTS[2] * person, person, calls, 0.0


def fallback_cell(task):
    """Return lines of scikit-fallback and of ours on the same models and rows."""
    stages, risk, many, peers = task
    draws = [draw(seed, len(stages[0]), 2000, again=False) for seed in range(many)]
    small, large = map(softmax, stages)
    rows = [rows for rows, _ in draws]
    costs = [1e-9, COSTS[1], COSTS[1] + COSTS[2]]  # of all asked; 0 is refused
    given = {"labels": stages[0].labels, "small": small, "large": large}
    more = ask(peers, "fallback", rows=rows, costs=costs, risk=risk, **given)
    out = {}
    for k, (first, new) in enumerate(draws):
        for way in ("default", "by ranks"):
            line = judge_picked(stages, new, more[way][k, :2], risk)
            out.setdefault(f"scikit-fallback, {way}", []).append(line)
        for combine in ("own", "average"):
            line = judge_cascade(stages, first, new, {"risk": risk}, combine)
            out.setdefault(f"ours, combine={combine}", []).append(line)
    return {way: np.array(own) for way, own in out.items()}, str(more["versions"])


def fallback(pool, given):
    """Compare with cross-validated thresholds, on the same models and rows."""
    if not given.peers:
        return {}, []
    said, _ = texts(given.shared)
    sets = {
        "made-up rows: logistic regression, boosted trees": train_made_up(),
        "IMDb: naive Bayes, logistic regression": list(said.values()),
    }
    many, risk = 4 if given.quick else 100, 0.05
    tasks = [(stages, risk, many, given.peers) for stages in sets.values()]
    found = dict(zip(sets, pool.map(fallback_cell, tasks, 1), strict=True))
    head = ["models", "who picks", "risk exceeded on new rows, %", "cost"]
    head += ["to a person, %", "large calls, %", "none found, %"]
    lines = []
    for words, (ways, _) in found.items():
        for way, own in ways.items():
            broken, _, person, calls, none = 100 * own.mean(0)
            shares = f"{person:.1f}", f"{calls:.1f}", f"{none:.0f}"
            lines.append([words, way, f"{broken:.0f}", shown(own[:, 1]), *shares])
    versions = next(iter(found.values()))[1]
    words = (
        f"{many} splits: 2,000 rows pick, all others judge; risk {risk:.0%} asked for. "
        f"{versions}: `ThresholdCascadeClassifierCV` with a person as its third model, "
        "scored by the accuracy among the accepted, `min_score` 0.95, "
        '`strategy="max_cost"` (the cheapest that has it). By default it tries 10 '
        "thresholds up to 0.95; by ranks: 15 quantiles of the largest probability. "
        "Where none of them has the score, it warns; a person gets all rows here."
    )
    return {"fallback": f"{table(head, lines)}\n\n{words}"}, []


PARTS = {
    "promises": promises,
    "rows": rows_part,
    "accuracy": accuracy,
    "text": text,
    "stages": stages_part,
    "fallback": fallback,
}
"""Each returns what it writes, and what is not as it should be."""


if __name__ == "__main__":
    run(PARTS, PAGE, TITLE, __doc__)
