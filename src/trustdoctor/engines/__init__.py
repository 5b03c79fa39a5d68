"""Engines: they split rows, call the core, and merge what it gives."""

from trustdoctor.engines.contract import (
    ENGINES,
    Engine,
    State,
    find_engine,
    register_engine,
)
from trustdoctor.engines.memory import (
    parse_memory,
    require_fitting,
    tuned,
)
from trustdoctor.engines.run import (
    BatchScreen,
    Diagnosis,
    Means,
    calibrate_files,
    diagnose,
    diagnose_rows,
    list_files,
    screen,
)
from trustdoctor.engines.shared_values import count_shared_rows
from trustdoctor.errors import missing_package


def _make_ray(address: str | None) -> Engine:
    try:
        from trustdoctor.engines.ray import RayEngine
    except ImportError as error:
        package = error.name or "ray"
        raise missing_package(
            what="the engine ray", package=package, extra="ray"
        ) from error
    return RayEngine(address)


register_engine("ray", _make_ray)

__all__ = [
    "ENGINES",
    "BatchScreen",
    "Diagnosis",
    "Engine",
    "Means",
    "State",
    "calibrate_files",
    "count_shared_rows",
    "diagnose",
    "diagnose_rows",
    "find_engine",
    "list_files",
    "parse_memory",
    "register_engine",
    "require_fitting",
    "screen",
    "tuned",
]
