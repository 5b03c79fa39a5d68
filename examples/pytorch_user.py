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
    training, gate_rows, new = split_digits()  # pairs of images and labels
    model = train(*training)  # in your case: the module that you have
    gate_loader, new_loader = (
        DataLoader(TensorDataset(*split), batch_size=128) for split in (gate_rows, new)
    )
    doctor = Doctor(model, score="alpha")
    predictions = doctor(gate_loader, quiet=True).predictions
    print(predictions)
    print(td.evaluate(predictions).verdict())
    gate = td.calibrate(predictions, score="alpha", trr=0.8)
    print(gate.certificate.promise())

    screened = doctor.screen(new_loader, gate, quiet=True)
    errors = screened.predictions.errors
    print(f"new images accepted: {screened.accepted.mean():.1%}")
    print(f"of these wrong: {errors[screened.accepted].mean():.1%}")
    print(f"of all wrong: {errors.mean():.1%}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
