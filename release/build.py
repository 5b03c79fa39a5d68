"""Builds what is released into dist/, and checks it: `make dist`.

    python release/build.py [--only any,manylinux_2_17_x86_64]

An sdist, and from it three wheels. Those for Linux have the compiled kernel, for every
instruction set of the processor; they take nothing of Python's ABI, so one serves all
versions. The one for any other platform has none, and numpy does the work. Needs gcc,
and Debian's gcc-aarch64-linux-gnu; build, twine, check-wheel-contents and auditwheel
from PyPI.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = {
    "manylinux_2_17_x86_64": "gcc",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu-gcc",
    "any": "",
}
"""What compiles the kernel of each wheel."""


def run(*command, **more):
    """Run one of the tools of this environment; end where it fails."""
    words = [sys.executable, "-m", *map(str, command)]
    done = subprocess.run(words, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed: {done.stdout or ''}")
    return done.stdout


def check_compilers(platforms):
    """Say which compiler is missing, before anything is built."""
    for platform in platforms:
        compiler = COMPILERS[platform]
        if compiler and shutil.which(compiler) is None:
            sys.exit(
                f"expected {compiler} for {platform}, got none. Install it "
                f"(Debian: apt install {compiler}), or leave the wheel out by --only."
            )


def build(platforms, out):
    """Build the sdist, and from what it holds each wheel."""
    run("build", "--sdist", "--outdir", out, ROOT, stdout=subprocess.PIPE)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(next(out.glob("*.tar.gz"))) as sdist:
            sdist.extractall(scratch, filter="data")
        (source,) = Path(scratch).iterdir()
        for platform in platforms:
            told = {"TRUSTDOCTOR_WHEEL": platform, "CC": COMPILERS[platform]}
            command = ("build", "--wheel", "--outdir", out, source)
            run(*command, env=os.environ | told, stdout=subprocess.PIPE)


def check(out):
    """Check what stands in the files, and what the compiled kernels ask of a system."""
    every = sorted(out.iterdir())
    wheels = [path for path in every if path.suffix == ".whl"]
    run("twine", "check", "--strict", *every)
    run("check_wheel_contents", *wheels)
    for wheel in wheels:
        platform = wheel.stem.rpartition("-")[2]
        if platform != "any":
            said = run("auditwheel", "show", wheel, stdout=subprocess.PIPE)
            plain = " ".join(said.split())
            if f'consistent with the following platform tag: "{platform}"' not in plain:
                sys.exit(f"expected {wheel.name} to be what its name says, got: {said}")
            needs = re.findall(r"(lib\S+) with versions {(.*?)}", plain)
            print(f"{platform} needs {' and '.join(' '.join(one) for one in needs)}")
    for path in every:
        print(f"{path.stat().st_size / 1000:7,.0f} kB  {path.name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(COMPILERS))
    platforms = parser.parse_args().only.split(",")
    if odd := set(platforms) - set(COMPILERS):
        sys.exit(f"expected some of {', '.join(COMPILERS)}, got {', '.join(odd)}.")
    check_compilers(platforms)
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    build(platforms, out)
    check(out)


if __name__ == "__main__":
    main()
