"""What a second opinion costs: ``make bench``.

    python benchmarks/opinion.py [VIEWS]    # 1, 5 or 9 of them; 5 by default

First its own work beyond the passes of the model. Then, where the folder ``shared`` is
at hand, the passes that views asked only while in doubt add, target by target.
"""

import io
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import trustdoctor as td

VIEWS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
ROWS = 512
CALIBRATION, SPLITS = 5000, 20
TARGETS = (
    {"frr": 0.05},
    {"trr": 0.95},
    {"risk": 0.05},
    {"risk": 0.02},
    {"coverage": 0.9},
    {"joint": 0.02},
)


def make():
    """Return a small convolutional net, of a ResNet-20's cost or so."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


def best(function, repeat=5):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_overhead():
    model, x = make().eval(), torch.randn(ROWS, 3, 32, 32)
    views = td.image_views(VIEWS)
    ask = td.SecondOpinion(model, views)

    def bare():
        with torch.no_grad():
            for batch in x.split(256):
                for _ in range(1 + VIEWS):
                    model(batch)

    ask(x)
    pairs = [(best(lambda: ask(x), 1), best(bare, 1)) for _ in range(7)]
    ratio = float(np.median([ours / theirs for ours, theirs in pairs]))
    seconds = min(theirs for _, theirs in pairs)
    print(
        f"SecondOpinion with {VIEWS} views on {ROWS} images: {ratio:.3f}x the bare "
        f"{1 + VIEWS} forward passes, {seconds:.2f} s (at most 1.05x; median of 7 "
        "pairs)"
    )


def load_images(shared):
    """Return ResNet-20, the CIFAR-10 test images as it takes them, and their labels."""
    import polars as pl
    from PIL import Image
    from safetensors.torch import load_file

    sys.path.insert(0, str(shared / "models"))
    import nets

    table = pl.read_parquet(shared / "data" / "cifar10-test.parquet")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in table["image"]])
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    net = nets.ResNet20()
    net.load_state_dict(load_file(shared / "models" / "resnet-20.safetensors"))
    return net.eval(), (x - mean) / std, table["label"].to_numpy()


def remember(model, x):
    """Return a second opinion about row numbers that looks up what the model says."""
    views = td.image_views(VIEWS)
    with torch.no_grad():
        batches = [
            model(view(batch))
            for view in (lambda batch: batch, *views)
            for batch in x.split(256)
        ]
    logits = torch.cat(batches).numpy()
    shifts = [
        td.View(view.name, lambda rows, k=k: rows + k * len(x))
        for k, view in enumerate(views, 1)
    ]
    return td.SecondOpinion(lambda rows: logits[rows], shifts, batch_size=len(x))


def measure_target(ask, labels, target):
    """Print what one target costs, over splits into rows that calibrate and judge."""
    (name, value), results = *target.items(), []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        calibration, new = np.split(order, [CALIBRATION])
        gate = ask.calibrate(calibration, labels[calibration], seed=seed, **target)
        screened = ask.screen(new, gate)
        outcome = td.Outcome.of(screened.accepted, screened.predicted != labels[new])
        rate = outcome.rates()[name].value
        results.append((screened.passes.mean() - 1, screened.accepted.mean(), rate))
    more_passes, accepted, rate = np.mean(results, axis=0)
    low, high = np.min(results, axis=0)[0], np.max(results, axis=0)[0]
    print(
        f"  {name} {value}: {more_passes:.2f} more passes per row ({low:.2f} to "
        f"{high:.2f}), "
        f"accepted {accepted:.1%}, {name} reached {rate:.2%}"
    )


def measure_passes(shared):
    """Print how many passes views add where they are asked only while in doubt."""
    model, x, labels = load_images(shared)
    ask = remember(model, x)
    print(
        f"ResNet-20 on CIFAR-10, {VIEWS} views, {CALIBRATION:,} rows calibrate and "
        f"{len(x) - CALIBRATION:,} judge; mean (and range) over {SPLITS} splits"
    )
    for target in TARGETS:
        measure_target(ask, labels, target)


def main():
    measure_overhead()
    default = Path(__file__).parents[2] / "shared"
    shared = Path(os.environ.get("TRUSTDOCTOR_SHARED", default))
    if shared.exists():
        measure_passes(shared)
    else:
        print(f"passes per target: skipped, {shared} is absent; set TRUSTDOCTOR_SHARED")


if __name__ == "__main__":
    main()
