"""PyTorch models: doubt at perturbed inputs, sweeps, and the white-box baseline."""

from trustdoctor.errors import missing_package

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise missing_package(
        what="the torch adapter", package="PyTorch", extra="torch"
    ) from error

from trustdoctor.adapters.torch.doctor import Doctor, Examination
from trustdoctor.adapters.torch.grid import (
    EPSILONS,
    TEMPERATURES,
    Setting,
    Sweep,
    sweep,
)
from trustdoctor.adapters.torch.metric import RejectionMetrics
from trustdoctor.adapters.torch.model import predictor
from trustdoctor.adapters.torch.robustness import radius
from trustdoctor.adapters.torch.whitebox import WhiteBox

__all__ = [
    "EPSILONS",
    "TEMPERATURES",
    "Doctor",
    "Examination",
    "RejectionMetrics",
    "Setting",
    "Sweep",
    "WhiteBox",
    "predictor",
    "radius",
    "sweep",
]
