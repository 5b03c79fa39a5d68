"""PyTorch models: doubt at perturbed inputs, sweeps, and the white-box baseline."""

from trustdoctor.errors import MissingPackageError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    message = (
        'this needs PyTorch, which is not installed: pip install "trustdoctor[torch]"'
    )
    raise MissingPackageError(message) from error

from trustdoctor.adapters.torch.doctor import Doctor, Examination
from trustdoctor.adapters.torch.metric import RejectionMetrics
from trustdoctor.adapters.torch.model import predictor
from trustdoctor.adapters.torch.radius import radius
from trustdoctor.adapters.torch.sweep import (
    EPSILONS,
    TEMPERATURES,
    Setting,
    Sweep,
    sweep,
)
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
