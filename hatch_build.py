"""Builds the C kernels into the wheel; without a compiler, does without.

The library is compiled in a folder of its own, so nothing in the checkout changes. An
editable install has it in site-packages, at the same place as any other install.

``TRUSTDOCTOR_WHEEL`` says which wheel to make: ``any`` for one without the library, or
a platform tag such as ``manylinux_2_17_aarch64``, for which ``CC`` has to compile.
Without it the wheel is for this machine.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "trustdoctor/kernels/_native/kernels.so"
FLAGS = [
    "-O3",
    "-fPIC",
    "-shared",
    "-s",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-Wno-psabi",
]


class NativeKernel(BuildHookInterface[Any]):
    """Compile ``_native/kernels.c`` with the system's C compiler, if there is one."""

    scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library and a platform tag to the wheel, or leave both out."""
        asked = os.environ.get("TRUSTDOCTOR_WHEEL")
        if self.target_name != "wheel" or asked == "any":
            return
        self.scratch = tempfile.TemporaryDirectory()
        built = str(Path(self.scratch.name, "kernels.so"))
        if self._compile(built):
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{asked or here}"
            editable = "_editable" if version == "editable" else ""
            build_data[f"force_include{editable}"][built] = PLACE
        elif asked:
            message = f"expected a C compiler for {asked}, got none that works. Set CC."
            raise RuntimeError(message)
        else:
            print(
                "trustdoctor: no working C compiler; "
                "the slower numpy kernel will be used",
                file=sys.stderr,
            )

    def finalize(self, *_given: Any) -> None:
        """Remove what was compiled: the wheel has it."""
        if self.scratch is not None:
            self.scratch.cleanup()

    def _compile(self, built: str) -> bool:
        source = str(Path(self.root, "src", PLACE).with_name("kernels.c"))
        given = os.environ.get("CC")
        names = [given] if given else ["cc", "gcc", "clang"]
        compilers = map(shlex.split, names)
        return any(
            subprocess.run(
                [*compiler, *FLAGS, source, "-o", built, "-lm"],
                capture_output=True,
                check=False,
            ).returncode
            == 0
            for compiler in compilers
            if shutil.which(compiler[0])
        )
