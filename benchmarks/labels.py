"""Flipped labels found by label quality, by alpha of errors, and by cleanlab.

200 labels of 10,000 are flipped to another class, drawn evenly. Each way ranks the
rows; printed is the share of flipped ones among its first 200, the mean over seeds.

    python benchmarks/labels.py [--views 5]

The rows are those of the bundled DenseNet and, where the folder of shared data is at
hand, of ResNet-20 and public networks. `--views` also asks ResNet-20 about views of
each image. cleanlab is imported where it is installed.
"""

import argparse
import importlib.util
import io
import os
import time
from pathlib import Path

import numpy as np
import scipy.special

import trustdoctor as td
from trustdoctor.demo import bundled_file

SHARED = Path(
    os.environ.get("TRUSTDOCTOR_SHARED", Path(__file__).parents[2] / "shared")
)
FLIPPED = 200

try:
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    get_label_quality_scores = None


def flip(labels, classes, seed):
    """Return labels with `FLIPPED` of them moved to another class, and which."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(labels), FLIPPED, replace=False)
    out = labels.copy()
    out[rows] = (out[rows] + rng.integers(1, classes, FLIPPED)) % classes
    return out, rows


def by_alpha(p):
    """Rank errors by how little alpha doubts them; correct rows come last."""
    return np.where(p.errors, td.alpha(p), np.inf)


def by_cleanlab(labels, probs):
    return get_label_quality_scores(labels, probs, method="self_confidence")


def precision(values, flipped):
    """Return the share of flipped rows among the `FLIPPED` least values."""
    first = np.argsort(values, kind="stable")[:FLIPPED]
    return np.isin(first, flipped).mean()


def measure(name, logits, labels, seeds, views=None):
    """Print what each way finds, on the same flips."""
    classes, shares_by_way = logits.shape[1], {}
    probs = scipy.special.softmax(logits.astype(np.float64), axis=1)
    for seed in range(seeds):
        given_labels, flipped = flip(labels, classes, seed)
        p = td.Predictions.from_logits(logits, given_labels)
        ways = {"label quality": td.label_quality(p), "alpha of errors": by_alpha(p)}
        if views is not None:
            with_views = td.Predictions.from_logits(views, given_labels)
            ways["label quality, mean over views"] = td.label_quality(with_views)
        if get_label_quality_scores is not None:
            ways["cleanlab self_confidence"] = by_cleanlab(given_labels, probs)
        for way, values in ways.items():
            shares_by_way.setdefault(way, []).append(precision(values, flipped))
    print(f"{name}: {FLIPPED} of {len(labels):,} labels flipped, {seeds} seeds")
    for way, shares in shares_by_way.items():
        error = np.std(shares, ddof=1) / np.sqrt(seeds)
        print(f"  {way:<32}{np.mean(shares):.3f} (standard error {error:.3f})")


def compare_times(logits, labels, repeat=9):
    """Print the time of label quality against cleanlab's, from the same logits."""
    p = td.Predictions.from_logits(logits, labels)
    pairs = []
    for _ in range(repeat):
        start = time.perf_counter()
        td.label_quality(p[:])  # a fresh object: nothing is known of it yet
        middle = time.perf_counter()
        by_cleanlab(labels, scipy.special.softmax(logits, axis=1))
        pairs.append((middle - start, time.perf_counter() - middle))
    ratio = np.median([theirs / ours for ours, theirs in pairs])
    ours = min(seconds for seconds, _ in pairs)
    print(
        f"label quality of {len(labels):,} rows: {ours * 1000:.1f} ms; cleanlab with "
        f"scipy's softmax: {ratio:.1f}x as long (median of {repeat} pairs)"
    )


def mean_over_views(count):
    """Return ResNet-20's mean log-probabilities over test images and their views."""
    import polars as pl
    import torch
    from PIL import Image
    from safetensors.torch import load_file

    spec = importlib.util.spec_from_file_location("nets", SHARED / "models" / "nets.py")
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    model = nets.ResNet20()
    model.load_state_dict(load_file(SHARED / "models" / "resnet-20.safetensors"))
    model.eval()
    table = pl.read_parquet(SHARED / "data" / "cifar10-test.parquet")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in table["image"]])
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    x = (torch.tensor(pixels).permute(0, 3, 1, 2) / 255 - mean) / std
    total = 0
    for view in (lambda images: images, *td.image_views(count)):
        with torch.no_grad():
            batches = [model(view(batch)).double() for batch in x.split(500)]
        total = total + torch.log_softmax(torch.cat(batches), 1).numpy()
    return total / (1 + count)


def load(name):
    """Return logits and labels of a file of the shared folder."""
    with np.load(SHARED / "predictions" / name) as file:
        return file["logits"], file["labels"].astype(np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--views", type=int, choices=(1, 5, 9), help="needs torch")
    arguments = parser.parse_args()
    if get_label_quality_scores is None:
        print("cleanlab is not installed: pip install cleanlab")
    p = td.read(bundled_file())
    measure("DenseNet, bundled", p.logits, p.labels, arguments.seeds)
    if not (SHARED / "predictions").is_dir():
        print(f"the data folder {SHARED} is absent: no other network")
    else:
        views = mean_over_views(arguments.views) if arguments.views else None
        logits, labels = load("resnet-20-cifar10-test.npz")
        measure("ResNet-20", logits, labels, arguments.seeds, views)
        for path in sorted((SHARED / "predictions" / "public").glob("*cifar10-*")):
            measure(path.stem, *load(f"public/{path.name}"), arguments.seeds)
    if get_label_quality_scores is not None:
        compare_times(np.tile(p.logits, (10, 1)), np.tile(p.labels, 10))


if __name__ == "__main__":
    main()
