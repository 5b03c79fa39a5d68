"""For a PyTorch user: a module, two DataLoaders, and a gate between them.

`Doctor` runs any module that returns logits over a DataLoader and leaves it as it was.
It prints::

    Predictions(700 rows, 10 classes, logits, accuracy 94.86%)
    Rejecting the 10% most doubtful predictions by alpha leaves 1.1% errors [0.3%, 2.4%] instead of 5.1%.
    at least 80% of the errors rejected, with confidence 0.9
    new images accepted: 80.6%
    of these wrong: 0.6%
    of all wrong: 6.3%
"""  # noqa: E501

import torch
from torch.utils.data import DataLoader, TensorDataset

import trustdoctor as td
from trustdoctor.adapters.torch import Doctor
from trustdoctor.demo.digits import split_digits, train


def main() -> None:
    """Train a small CNN, calibrate on some rows, decide on others."""
    training, held, new = split_digits()  # pairs of images and labels
    model = train(*training)  # in your case: the module that you have
    known, later = (
        DataLoader(TensorDataset(*part), batch_size=128) for part in (held, new)
    )
    doctor = Doctor(model, score="alpha")
    found = doctor(known, quiet=True).predictions
    print(found)
    print(td.evaluate(found).verdict())
    gate = td.calibrate(found, score="alpha", trr=0.8)
    print(gate.certificate.promise())

    done = doctor.screen(later, gate, quiet=True)
    errors = done.predictions.errors
    print(f"new images accepted: {done.accepted.mean():.1%}")
    print(f"of these wrong: {errors[done.accepted].mean():.1%}")
    print(f"of all wrong: {errors.mean():.1%}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
