"""A small CNN on scikit-learn's digits, gated by DOCTOR with input perturbation.

Run it by ``trustdoctor demo --pbb``. It needs the extras torch and sklearn, takes some
seconds, and fetches nothing.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from trustdoctor.adapters.torch import Doctor, Setting, sweep
from trustdoctor.metrics import auroc, delong_difference

EPSILONS = (0.0, 0.005, 0.01, 0.02, 0.05)
TEMPERATURES = (1.0, 1.5, 2.0)


def split_digits() -> list[tuple[Tensor, Tensor]]:
    """Return (images, labels) to train on, to choose on, and to judge on."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    row_sets = order[:300], order[300:1000], order[1000:]
    return [(images[rows], labels[rows]) for rows in row_sets]


def train(images: Tensor, labels: Tensor, *, epochs: int = 40) -> nn.Module:
    """Train a small CNN, on few images, so that there are errors to find."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model


def choose(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Setting:
    """Choose temperature and magnitude on rows that are not used for judging."""
    swept = sweep(
        model,
        [rows],
        scores=["alpha"],
        temperatures=TEMPERATURES,
        epsilons=EPSILONS,
    )
    errors = swept.predictions.errors

    def quality(setting: Setting) -> float:
        return auroc(swept.column(setting), errors)

    best = max(swept.settings, key=quality)
    print(
        f"Chosen on {len(errors)} other rows among {len(swept.settings)} settings: "
        f"T = {best.temperature:g}, epsilon = {best.epsilon:g}"
    )
    return best


def main() -> None:
    """Train, choose temperature and magnitude on some rows, judge on others."""
    training, choosing, judging = split_digits()
    model = train(*training)
    print(f"A small CNN, trained on {len(training[1])} of scikit-learn's digits.")

    # Two lines wrap the model: predictions with their doubts, as a black box.
    doctor = Doctor(model, score="alpha")
    plain = doctor([judging])
    print(f"{plain.predictions}")
    print(plain.evaluate(), "\n")

    best = choose(model, choosing)
    epsilon = best.epsilon or 0.01
    if epsilon != best.epsilon:
        print("No perturbation did best there; 0.01 is shown all the same.")
    doctor = Doctor(model, temperature=best.temperature, epsilon=epsilon)
    perturbed = doctor([judging])
    print(f"With a perturbation of {epsilon:g}:")
    print(perturbed.evaluate())

    clean = perturbed.predictions.errors
    change = auroc(perturbed.scores, clean) - auroc(plain.scores, clean)
    low, high = delong_difference(perturbed.scores, plain.scores, clean)
    verdict = "helps" if low > 0 else "harms" if high < 0 else "changes little"
    print(
        "\nOn the predictions that a user acts on (deployed), perturbation "
        f"{verdict}:\n"
        f"AUROC {100 * change:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]."
    )


if __name__ == "__main__":
    main()
