"""What the figures were measured on."""

import platform
from pathlib import Path


def processor():
    """Name the processor."""
    names = Path("/proc/cpuinfo")
    found = names.read_text().split("model name") if names.exists() else []
    name = found[1].split("\n")[0].strip("\t: ") if len(found) > 1 else ""
    return name or platform.machine()
