"""ONNX: a model's predictions by onnxruntime, and a gate inside a model's graph."""

from trustdoctor.errors import missing_package

try:
    import onnx as _onnx
except ImportError as error:
    raise missing_package(
        what="the ONNX adapter", package="onnx", extra="onnx"
    ) from error

from trustdoctor.adapters.onnx.guard import check_gate, export, outputs_of
from trustdoctor.adapters.onnx.runtime import predict, predictor
from trustdoctor.adapters.onnx.score_tensor import Taken, find_scores

del _onnx

__all__ = [
    "Taken",
    "check_gate",
    "export",
    "find_scores",
    "outputs_of",
    "predict",
    "predictor",
]
