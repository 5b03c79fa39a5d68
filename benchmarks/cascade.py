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
    """Return the predictions of two models, and of both together."""
    folder = shared / "predictions"
    predictions = [td.read(folder / f"{name}.npz") for name in PAIRS[pair]]
    return (*predictions, together(*predictions))


def together(*stages):
    """Return the mean of models' predictions, all asked about all rows."""
    names = tuple(f"stage {k}" for k in range(len(stages)))
    thresholds = (-math.inf,) * (len(stages) - 1) + (math.inf,)
    cascade = td.Cascade(names, thresholds, (0,) * len(stages) + (1,))
    return cascade.screen(stages, by_position=True).predictions


def rates(accepted, wrong):
    """Return what promises bound."""
    accepted_errors = (accepted & wrong).sum()
    return {
        "risk": accepted_errors / max(1, accepted.sum()),
        "joint": accepted_errors / len(wrong),
        "trr": 1 - accepted_errors / max(1, wrong.sum()),
    }


def is_broken(accepted, wrong, promise):
    ((name, value),) = promise.items()
    rate = rates(accepted, wrong)[name]
    return rate < value - 1e-12 if name == "trr" else rate > value + 1e-12


def judge_alone(p, rows, new_rows, promise, cost):
    """Calibrate one model by itself; return what `HEAD` says, on new rows."""
    gate = td.calibrate(p[rows], score="alpha", confidence=SURE, **promise)
    accepted, wrong = gate.screen(p[new_rows]).accepted, p[new_rows].errors
    person = 1 - accepted.mean()
    broken = is_broken(accepted, wrong, promise)
    return broken, cost + COSTS[-1] * person, person, float(cost > 0), 0.0


def judge_cascade(stages, rows, new_rows, promise, combine="average"):
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
    decisions = cascade.screen([p[new_rows] for p in stages], by_position=True)
    wrong = decisions.predicted != stages[0][new_rows].labels
    broken = is_broken(decisions.accepted, wrong, promise)
    calls = (decisions.passes > 1).mean()
    return broken, decisions.costs.mean(), (~decisions.accepted).mean(), calls, 0.0


def draw(seed, size, rows, *, again):
    """Return calibration rows, and rows that judge: drawn again, the whole file."""
    rng = np.random.default_rng(seed)
    if again:
        return rng.integers(0, size, rows), np.arange(size)
    order = rng.permutation(size)
    return order[:rows], order[rows:]


def judge_all(stages, rows, new_rows, promise, ways):
    """Judge each way to decide about the same rows."""
    small, large, average = stages
    judges = {
        SMALL: lambda: judge_alone(small, rows, new_rows, promise, COSTS[0]),
        LARGE: lambda: judge_alone(large, rows, new_rows, promise, COSTS[1]),
        BOTH: lambda: judge_alone(average, rows, new_rows, promise, COSTS[1]),
        CASCADE: lambda: judge_cascade([small, large], rows, new_rows, promise),
        OWN: lambda: judge_cascade([small, large], rows, new_rows, promise, "own"),
    }
    return [judges[way]() for way in ways]


def promise_cell(task):
    """Return lines of `judge_all` over splits, or over rows drawn with replacement."""
    stages, promise, rows, (runs, with_replacement), ways = task
    if isinstance(stages[0], Path):
        stages = read_pair(*stages)
    judged = []
    for seed in range(runs):
        first, new = draw(seed, len(stages[0]), rows, again=with_replacement)
        judged.append(judge_all(stages, first, new, promise, ways))
    return np.array(judged, float)


HEAD = ["cost", "to a person, %", "large calls, %", "broken on the other rows, %"]
HEAD += ["broken, rows drawn again, %", "no policy, %"]


def shown(values, digits=2):
    """Return the mean over independent runs, with its 95% interval."""
    half_width = 1.96 * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half_width:.{digits}f}"


def promise_line(splits, redraws):
    """Return the columns of `HEAD`."""
    broken, _, person, calls, no_policy = 100 * splits.mean(0)
    shares = f"{person:.1f}", f"{calls:.1f}", f"{broken:.1f}"
    truth = f"{100 * redraws[:, 0].mean():.1f}"
    return [shown(splits[:, 1]), *shares, truth, f"{no_policy:.1f}"]


def too_often(broken):
    """Whether a promise is broken more often than it may be, chance apart."""
    chance = 3 * math.sqrt(SURE * (1 - SURE) / len(broken))
    return broken.mean() > 1 - SURE + chance


def promise_words(promise):
    ((name, value),) = promise.items()
    return f"{name} {value:.0%}"


def promises(pool, options):
    """Measure what a promise costs by each way, and how often it is broken."""
    n_splits, n_redraws = (6, (6, 6)) if options.quick else (200, (400, 200))
    ways = dict.fromkeys(CELLS, (SMALL, LARGE, BOTH, CASCADE))
    ways[CELLS[0]] += (OWN,)
    tasks = [
        ((options.shared, pair), {name: value}, ROWS, drawing, ways[pair, name, value])
        for k, (pair, name, value) in enumerate(CELLS)
        for drawing in ((n_redraws[k > 0], True), (n_splits, False))
    ]
    results = pool.map(promise_cell, tasks, 1)
    lines, failures = [], []
    for k, (pair, name, value) in enumerate(CELLS):
        promise = promise_words({name: value})
        for i, way in enumerate(ways[pair, name, value]):
            redraws, splits = (result[:, i] for result in results[2 * k : 2 * k + 2])
            lines.append([pair, promise, way, *promise_line(splits, redraws)])
            if too_often(broken := redraws[:, 0]):
                failures.append(f"{pair}, {promise}, {way}: broken {broken.mean():.1%}")
    cost = results[1][:, ways[CELLS[0]].index(CASCADE), 1].mean()
    failures += [f"{FIRST}: cost {cost:.2f}"] if cost > 1.45 else []
    markdown = table(["models", "promise", "who decides", *HEAD], lines)
    return {"promises": f"{markdown}\n\n{split_words(n_splits, n_redraws)}"}, failures


def split_words(n_splits, n_redraws):
    first, later = n_redraws
    return (
        f"{n_splits} splits of {ROWS:,} rows that calibrate and {ROWS:,} others. Rows "
        f"drawn again: {first} times (first promise) or {later} times {ROWS:,} rows "
        "from all, with replacement, which are the truth then. A large call costs "
        f"{COSTS[1]}, a person {COSTS[2]}. At most {1 - SURE:.0%} may be broken where "
        "rows are drawn again. The other half of a split has errors of its own: a rule "
        "that just keeps its promise is seen to break it in about 16 to 18% of them. ± "
        "is the 95% interval over splits."
    )


def rows_part(pool, options):
    """Measure what few calibration rows cost."""
    sizes, ways = (200, 500, 1000, 2000, 5000), (SMALL, CASCADE)
    n_splits = 6 if options.quick else 200
    pair, drawing = (options.shared, FIRST), (n_splits, False)
    tasks = [(pair, {"risk": 0.05}, n, drawing, ways) for n in sizes]
    results = pool.map(promise_cell, tasks[::-1], 1)[::-1]
    head = ["rows", "cost, small alone", "cost, cascade", "cascade less small"]
    head += ["no policy, %"]
    lines = []
    for n, result in zip(sizes, results, strict=True):
        costs = result[:, :, 1]
        less, no_policy = costs[:, 1] - costs[:, 0], 100 * result[:, 1, 4].mean()
        columns = (costs[:, 0], costs[:, 1], less)
        lines.append([f"{n:,}", *map(shown, columns), f"{no_policy:.1f}"])
    words = f"{FIRST}, risk 5%, {n_splits} splits. Where no policy passes, a person "
    words += f"costs {COSTS[-1]} for every row."
    return {"rows": f"{table(head, lines)}\n\n{words}"}, []


SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.5, 1)


def curve(small, later):
    """Return who is right, the most doubtful row of the small model first."""
    order = np.argsort(-td.alpha(small), kind="stable")
    return [~p.errors[order] for p in (small, later)]


def by_share(first, later, weights, shares):
    """Return the accuracy if the second answers these shares of the rows."""
    before, gain = weights * first, weights * (later.astype(int) - first)
    ends = np.searchsorted(np.cumsum(weights), np.round(shares * weights.sum()))
    summed = np.append(0, np.cumsum(gain))
    answered = np.where(shares > 0, np.minimum(ends + 1, len(first)), 0)
    return (before.sum() + summed[answered]) / weights.sum()


def least_share(small, large, later, draws=500):
    """Return the share of calls that reaches the large model's accuracy, its interval.

    By paired bootstrap over the rows; nan where no share does.
    """
    first, then = curve(small, later)
    alone = curve(small, large)[1]
    shares, n = np.arange(0, 1.001, 0.01), len(first)
    rng, shares_found = np.random.default_rng(0), []
    for k in range(draws + 1):
        weights = rng.multinomial(n, np.full(n, 1 / n)) if k else np.ones(n, int)
        reached = by_share(first, then, weights, shares)
        accuracy = (weights * alone).sum() / n
        enough = np.flatnonzero(reached >= accuracy - 1e-12)
        shares_found.append(shares[enough[0]] if len(enough) else np.nan)
    share, *bootstrapped = shares_found
    bootstrapped = np.where(np.isnan(bootstrapped), 1.01, bootstrapped)
    return share, *np.quantile(bootstrapped, ENDS)


ENDS = (0.025, 0.975)


def check_curve(small, large, combine, accuracies):
    """Hold a cascade made by hand against the curve, at each of `SHARES`."""
    ranked = np.sort(td.alpha(small))
    for share, accuracy in zip(SHARES, accuracies, strict=True):
        last = len(small) - round(share * len(small)) - 1
        threshold = float(ranked[last]) if last >= 0 else -math.inf
        cascade = td.Cascade(("a", "b"), (threshold, math.inf), COSTS, combine=combine)
        decisions = cascade.screen([small, large], by_position=True)
        tied = (ranked == threshold).sum() / len(small)
        reached = (decisions.predicted == small.labels).mean()
        assert abs(reached - accuracy) <= tied, (share, reached, accuracy)


def share_words(share):
    """Return a share of calls with its interval, in percent."""
    if share[0] != share[0]:
        return "none does"
    low, high = (f"{100 * x:.0f}" if x <= 1 else "none" for x in share[1:])
    return f"{100 * share[0]:.0f} [{low}, {high}]"


def accuracy_lines(words, small, large):
    """Return lines of accuracy by share of calls, averaged and by the large one."""
    lines = []
    for combine, later in (("average", together(small, large)), ("own", large)):
        first, then = curve(small, later)
        accuracies = by_share(first, then, np.ones(len(first), int), np.array(SHARES))
        check_curve(small, large, combine, accuracies)
        share = least_share(small, large, later)
        large_alone = f"{100 * (1 - large.errors.mean()):.2f}"
        percents = [f"{100 * x:.2f}" for x in accuracies]
        lines.append([words, combine, *percents, large_alone, share_words(share)])
    return lines


ACCURACY = ["models", "combine", *(f"{100 * s:.0f}% calls" for s in SHARES)]
ACCURACY += ["large alone", "share that reaches it, %"]


def accuracy_pair(task):
    shared, pair = task
    small, large, _ = read_pair(shared, pair)
    return accuracy_lines(pair, small, large)


def accuracy(pool, options):
    """Measure accuracy without rejection, by the share of large calls."""
    line_lists = pool.map(accuracy_pair, [(options.shared, pair) for pair in PAIRS], 1)
    reached = float(line_lists[0][0][2 + SHARES.index(0.2)])
    failures = [f"{FIRST}: {reached} at 20%"] if reached < 90.6 else []
    markdown = table(ACCURACY, [line for lines in line_lists for line in lines])
    return {"accuracy": markdown}, failures


def train_words(shared):
    """Return predictions of naive Bayes and logistic regression for the reviews."""
    import polars as pl
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB

    reviews = pl.read_parquet(shared / "data" / "imdb.parquet")
    train, test = (reviews.filter(pl.col("split") == s) for s in ("train", "test"))
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
    predictions = {}
    for name, (count, model) in models.items():
        model.fit(count.fit_transform(train["text"].to_list()), truth)
        logits = model.predict_log_proba(count.transform(test["text"].to_list()))
        predictions[name] = td.Predictions.from_logits(logits, labels)
    return predictions


@cache
def texts(shared):
    """Return the predictions of three models for the IMDb reviews."""
    large = td.read(shared / "predictions" / "minilm-imdb-test.npz")
    small_models = train_words(shared)
    assert all((p.labels == large.labels).all() for p in small_models.values())
    return small_models, large


def text(pool, options):
    """Measure cascades of text classifiers."""
    small_models, large = texts(options.shared)
    pairs = {f"{name}, MiniLM": (p, large) for name, p in small_models.items()}
    tasks = [(words, *pair) for words, pair in pairs.items()]
    curves = pool.starmap(accuracy_lines, tasks, 1)
    n_splits, n_redraws = (6, 6) if options.quick else (100, 100)
    ways, promise = (SMALL, LARGE, BOTH, CASCADE, OWN), {"risk": 0.05}
    tasks = [
        ((*pair, together(*pair)), promise, ROWS, drawing, ways)
        for pair in pairs.values()
        for drawing in ((n_redraws, True), (n_splits, False))
    ]
    results, lines, failures = pool.map(promise_cell, tasks, 1), [], []
    for k, words in enumerate(pairs):
        for i, way in enumerate(ways):
            redraws, splits = (result[:, i] for result in results[2 * k : 2 * k + 2])
            lines.append([words, way, *promise_line(splits, redraws)])
            failures += [f"{words}, {way}: broken"] if too_often(redraws[:, 0]) else []
    accuracies = table(ACCURACY, [line for lines in curves for line in lines])
    cost = table(["models", "who decides", *HEAD], lines)
    words = (
        f"Risk 5%, costs {', '.join(map(str, COSTS))}: {n_splits} splits of {ROWS:,} "
        f"rows that calibrate and {len(large) - ROWS:,} others; {n_redraws} times "
        f"{ROWS:,} rows drawn again."
    )
    return {"text": accuracies, "text-costs": f"{cost}\n\n{words}"}, failures


VIEWS = "ResNet-20 at three views"
PUBLIC = "ResNet-20, MobileNetV2, RepVGG-A1 (public)"


def look(shared):
    """Return the predictions of ResNet-20 for the test images and two views of them."""
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
        logits = [
            torch.cat([net(view(batch)) for batch in ((x - mean) / std).split(500)])
            for view in (lambda batch: batch, *views)
        ]
    return [td.Predictions.from_logits(z.numpy(), labels) for z in logits]


def read_public(shared):
    """Return the predictions of three public models for CIFAR-10."""
    names = "resnet20", "mobilenetv2_x1_0", "repvgg_a1"
    folder = shared / "predictions" / "public"
    return [td.read(folder / f"{name}-cifar10-test.npz") for name in names]


def ask_all(cascade, stages):
    """Return accepted, predicted and models asked, from all models for all rows."""
    n, last = len(stages[0]), len(stages) - 1
    passes, predicted = np.zeros(n, int), np.zeros(n, int)
    in_doubt, accepted = np.ones(n, bool), np.zeros(n, bool)
    for k, threshold in enumerate(cascade.thresholds):
        if math.inf == -max(cascade.thresholds[k:]):
            break  # none after it stops a row
        p = together(*stages[: k + 1]) if k else stages[0]
        stops = in_doubt & (td.alpha(p) <= threshold) & (threshold > -math.inf)
        passes[in_doubt], predicted[in_doubt] = k + 1, p.predicted[in_doubt]
        accepted, in_doubt = accepted | stops, in_doubt & ~stops
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
    judged = []
    for seed in seeds:
        rows, new = draw(seed, len(stages[0]), ROWS, again=True)
        sample = [p[rows] for p in stages]
        cascade = td.Cascade.calibrate(
            sample, costs=costs, risk=risk, confidence=SURE, by_position=True
        )
        models = [Asked(p) for p in stages]
        decisions = cascade.screen(models, data=new)
        accepted, predicted, passes = ask_all(cascade, stages)
        assert (decisions.accepted == accepted).all()
        assert (decisions.predicted == predicted).all()
        assert (decisions.passes == passes).all()
        asked_rows = [(passes > k).sum() for k in range(len(models))]
        assert [m.rows for m in models] == asked_rows
        broken = is_broken(accepted, predicted != stages[0].labels, {"risk": risk})
        shares = (~accepted).mean(), *(m.rows / len(new) for m in models)
        judged.append([broken, decisions.costs.mean(), *shares])
    return np.array(judged, float)


def stages_part(pool, options):
    """Measure cascades of three stages, and hold lazy answers against full ones."""
    runs, person = 4 if options.quick else 200, COSTS[-1]
    sets = {
        PUBLIC: (read_public(options.shared), 0.02, (0, 1, 2, person)),
        VIEWS: (look(options.shared), 0.05, (0.1, 0.1, 0.1, person)),
    }
    tasks = [(result, range(k, runs, 2)) for result in sets.values() for k in (0, 1)]
    results, lines, failures = pool.map(stage_cell, tasks, 1), [], []
    for k, (words, (_, risk, costs)) in enumerate(sets.items()):
        result = np.concatenate(results[2 * k : 2 * k + 2])
        asked_shares = ", ".join(f"{100 * x:.0f}" for x in result[:, 3:].mean(0))
        shares = [f"{100 * result[:, i].mean():.1f}" for i in (2, 0)]
        costs_shown = ", ".join(map(str, costs))
        cost = shown(result[:, 1])
        lines.append([words, costs_shown, f"{risk:.0%}", cost, asked_shares, *shares])
        failures += [f"{words}: broken"] if too_often(result[:, 0]) else []
    head = ["stages", "costs", "risk", "cost", "asked about, % of the rows"]
    markdown = table([*head, "to a person, %", "broken, rows drawn again, %"], lines)
    words = (
        f"{runs} calibrations each on {ROWS:,} rows drawn again, judged on all. Each "
        "time models that are asked lazily decided as all models asked about all rows "
        "do, to the bit, and were asked about no other rows."
    )
    return {"stages": f"{markdown}\n\n{words}"}, failures


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
    probs = [model.predict_proba(x[10_000:]) for model in models]
    return [td.Predictions.from_probs(p, y[10_000:]) for p in probs]


def softmax(p):
    z = p.logits.astype(np.float64)
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def judge_picked(stages, new, thresholds, risk):
    """Judge thresholds of the largest probability, each model by itself."""
    if np.isnan(thresholds[0]):
        return 0.0, COSTS[-1], 1.0, 0.0, 1.0
    confidence = [softmax(p)[new].max(1) for p in stages]
    first, second = confidence[0] >= thresholds[0], confidence[1] >= thresholds[1]
    accepted = first | second
    predicted = np.where(first, *(p.predicted[new] for p in stages))
    broken = is_broken(accepted, predicted != stages[0].labels[new], {"risk": risk})
    calls, person = 1 - first.mean(), 1 - accepted.mean()
    return broken, COSTS[1] * calls + COSTS[2] * person, person, calls, 0.0


def fallback_cell(task):
    """Return lines of scikit-fallback and of ours on the same models and rows."""
    stages, risk, runs, peers = task
    draws = [draw(seed, len(stages[0]), 2000, again=False) for seed in range(runs)]
    small, large = map(softmax, stages)
    rows = [rows for rows, _ in draws]
    costs = [1e-9, COSTS[1], COSTS[1] + COSTS[2]]  # of all asked; 0 is refused
    arrays = {"labels": stages[0].labels, "small": small, "large": large}
    peer_results = ask(peers, "fallback", rows=rows, costs=costs, risk=risk, **arrays)
    judged = {}
    for k, (first, new) in enumerate(draws):
        for way in ("default", "by ranks"):
            line = judge_picked(stages, new, peer_results[way][k, :2], risk)
            judged.setdefault(f"scikit-fallback, {way}", []).append(line)
        for combine in ("own", "average"):
            line = judge_cascade(stages, first, new, {"risk": risk}, combine)
            judged.setdefault(f"ours, combine={combine}", []).append(line)
    judged = {way: np.array(lines) for way, lines in judged.items()}
    return judged, str(peer_results["versions"])


def fallback(pool, options):
    """Compare with cross-validated thresholds, on the same models and rows."""
    if not options.peers:
        return {}, []
    small_models, _ = texts(options.shared)
    sets = {
        "made-up rows: logistic regression, boosted trees": train_made_up(),
        "IMDb: naive Bayes, logistic regression": list(small_models.values()),
    }
    runs, risk = 4 if options.quick else 100, 0.05
    tasks = [(stages, risk, runs, options.peers) for stages in sets.values()]
    results = dict(zip(sets, pool.map(fallback_cell, tasks, 1), strict=True))
    head = ["models", "who picks", "risk exceeded on new rows, %", "cost"]
    head += ["to a person, %", "large calls, %", "none found, %"]
    lines = []
    for words, (ways, _) in results.items():
        for way, judged in ways.items():
            broken, _, person, calls, no_policy = 100 * judged.mean(0)
            shares = f"{person:.1f}", f"{calls:.1f}", f"{no_policy:.0f}"
            lines.append([words, way, f"{broken:.0f}", shown(judged[:, 1]), *shares])
    versions = next(iter(results.values()))[1]
    words = (
        f"{runs} splits: 2,000 rows pick, all others judge; risk {risk:.0%} asked for. "
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
