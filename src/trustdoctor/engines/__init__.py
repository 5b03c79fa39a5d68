"""Engines: they split rows, call the core, and merge what it gives."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from trustdoctor.engines import local
from trustdoctor.errors import InputError, MissingPackageError


@dataclass(frozen=True)
class Engine:
    """Three verbs, each run in its own way.

    Attributes
    ----------
    name : str
        "local" or "ray".
    screen, diagnose, sketch : callable
        As in `trustdoctor.engines.local`.
    """

    name: str
    screen: Any
    diagnose: Any
    sketch: Any


def find_engine(name: str) -> Engine:
    """Return the engine: local, ray, or ray=ADDRESS of a running cluster."""
    kind, _, address = name.partition("=")
    if name == "local":
        return Engine("local", local.screen, local.diagnose, local.sketch)
    if kind == "ray" and (address or name == "ray"):
        if find_spec("ray") is None:
            message = (
                "the engine ray needs ray, which is not installed: "
                'pip install "trustdoctor[ray]"'
            )
            raise MissingPackageError(message)
        from trustdoctor.engines.ray import make_engine

        return make_engine(address or None)
    message = f"expected the engine local, ray or ray=ADDRESS, got {name!r}."
    raise InputError(message)
