"""Builds the C kernels into the package; without a compiler, does without."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = [
    "-O3",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-Wno-psabi",
]


class NativeKernel(BuildHookInterface[Any]):
    """Compile ``_native/kernels.c`` with the system's C compiler, if there is one."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Add the library and a platform tag to the wheel, or leave both out."""
        folder = Path(self.root, "src", "trustdoctor", "kernels", "_native")
        if self.target_name == "wheel" and self._compile(folder):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            build_data["artifacts"].append("src/trustdoctor/kernels/_native/kernels.so")

    def _compile(self, folder: Path) -> bool:
        candidates = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else []
        candidates += [[name] for name in ("cc", "gcc", "clang")]
        built = folder / "kernels.so.new"
        for compiler in candidates:
            if shutil.which(compiler[0]) is None:
                continue
            source = str(folder / "kernels.c")
            command = [*compiler, *FLAGS, source, "-o", str(built), "-lm"]
            if (
                subprocess.run(command, capture_output=True, check=False).returncode
                == 0
            ):
                # A running process may have the old library mapped: replace, do
                # not overwrite.
                built.replace(folder / "kernels.so")
                return True
        (folder / "kernels.so").unlink(missing_ok=True)
        print(
            "trustdoctor: no working C compiler; the slower numpy kernel will be used",
            file=sys.stderr,
        )
        return False
