"""Bring predictions in: one file a foreign thing, imported when it is used."""

from importlib import import_module
from typing import Any

__all__ = [
    "arrays",
    "arrow",
    "datasets",
    "decisions",
    "files",
    "footers",
    "formats",
    "onnx",
    "plot",
    "rows",
    "scan",
    "sklearn",
    "tables",
    "topk",
    "torch",
    "transformers",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"trustdoctor.adapters.{name}")
    message = f"module 'trustdoctor.adapters' has no attribute {name!r}"
    raise AttributeError(message)
