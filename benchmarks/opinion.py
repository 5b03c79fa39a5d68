"""What a second opinion costs beyond the passes of the model: ``make bench``."""

import time

import numpy as np
import torch
from torch import nn

import trustdoctor as td

ROWS, VIEWS = 512, 5


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


def main():
    model, x = make().eval(), torch.randn(ROWS, 3, 32, 32)
    views = td.image_views(VIEWS)
    ask = td.SecondOpinion(model, views)

    def bare():
        with torch.no_grad():
            for part in x.split(256):
                for _ in range(1 + VIEWS):
                    model(part)

    ask(x)
    pairs = [(best(lambda: ask(x), 1), best(bare, 1)) for _ in range(7)]
    ratio = float(np.median([ours / theirs for ours, theirs in pairs]))
    took = min(theirs for _, theirs in pairs)
    print(
        f"SecondOpinion with {VIEWS} views on {ROWS} images: {ratio:.3f}x the bare "
        f"{1 + VIEWS} forward passes, {took:.2f} s (at most 1.05x; median of 7 pairs)"
    )


if __name__ == "__main__":
    main()
