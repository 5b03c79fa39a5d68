"""How much of the code a call walks through: functions, files and changes of file.

    python benchmarks/walks.py [--rows 5000] [--code SRC] [--list NAME ...]

Counts, for each of the main calls, the distinct functions of trustdoctor that are
entered, the files that they stand in, and how often the trace of calls passes from one
file to another. Comprehensions and lambdas belong to the function around them, imports
have happened before, and one thread does all. For `tune` and `evaluate` it also counts
the passes over rows of logits. ``--code`` measures the package in another folder;
``--list`` prints the functions of these walks, too, in the order of their first call.
"""

import argparse
import contextlib
import io
import itertools
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

INNER = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")

PASS = "_score_chunks"
"""The function of `kernels` that every pass over rows of logits goes through."""


@dataclass
class Walk:
    """The functions that a call enters, in the order of their first call."""

    functions: dict[tuple[str, int, str], int] = field(default_factory=dict)
    changes: int = 0
    passes: int = 0

    @property
    def files(self):
        """The files that the functions stand in."""
        return list(dict.fromkeys(file for file, _, _ in self.functions))


def trace(call, package):
    """Return the walk of a call through the files of a package."""
    walk, latest = Walk(), None

    def enter(frame, event, _argument):
        nonlocal latest
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(package):
            return
        if code.co_name in INNER:
            return
        file = code.co_filename.removeprefix(package)
        function = file, code.co_firstlineno, code.co_name
        walk.functions[function] = walk.functions.get(function, 0) + 1
        walk.changes += latest not in (None, file)
        walk.passes += code.co_name == PASS
        latest = file

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk


def write_rows(path, rows):
    """Write labelled logits of ten classes, of which about a tenth are wrong."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(rows, 10))
    logits[np.arange(rows), rng.integers(0, 10, rows)] += 6
    probable = np.exp(logits - logits.max(1, keepdims=True))
    probable /= probable.sum(1, keepdims=True)
    labels = (probable.cumsum(1) > rng.random((rows, 1))).argmax(1)
    header = [*(f"logit_{c}" for c in range(10)), "label"]
    lines = [",".join(header)]
    for values, label in zip(logits.tolist(), labels.tolist(), strict=True):
        lines.append(",".join([*(f"{v:.6f}" for v in values), str(label)]))
    Path(path).write_text("\n".join(lines) + "\n")


def run_command(arguments):
    """Run the command line in this process, without what it prints."""
    from trustdoctor.cli import main

    sys.argv = ["trustdoctor", *arguments]
    silent = io.TextIOWrapper(io.BytesIO())
    with (
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
        contextlib.suppress(SystemExit),
    ):
        main()
    output = Path(arguments[-1])
    if not output.exists():
        raise RuntimeError(silent.buffer.getvalue().decode())


def calls(folder, rows):
    """Return the main calls by name; each can be made again."""
    import trustdoctor as td

    first, second = folder / "first.csv", folder / "second.csv"
    write_rows(first, rows)
    write_rows(second, rows)
    predictions = td.read(first)
    gate = td.calibrate(predictions, risk=0.03)
    gate.save(folder / "gate.json")
    numbers = itertools.count()

    def screening():
        output = folder / f"screened-{next(numbers)}.csv"
        arguments = ["screen", second, "--gate", folder / "gate.json", "-o", output]
        return [str(argument) for argument in arguments]

    def fresh():
        """Return rows that have cached nothing yet."""
        return td.read(first)

    def watch_and_rows():
        return gate.watch(), fresh()

    # What a call takes is made before the walk: those are no part of it.
    return {
        "read": (lambda: first, td.read),
        "calibrate(risk=0.03)": (fresh, lambda p: td.calibrate(p, risk=0.03)),
        "screen": (fresh, gate.screen),
        "watch.update": (watch_and_rows, lambda pair: pair[0].update(pair[1])),
        "evaluate": (fresh, td.evaluate),
        "tune": (fresh, td.tune),
        "command line: screen": (screening, run_command),
    }


def measure(rows, names):
    """Return the walk of each call, after one that imports and fills caches."""
    import trustdoctor

    package = str(Path(trustdoctor.__file__).parent) + os.sep
    walks = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (prepare, call) in calls(Path(scratch), rows).items():
            if names and name.partition("(")[0] not in names:
                continue
            call(prepare())
            argument = prepare()
            walks[name] = trace(lambda a=argument, call=call: call(a), package)
    return walks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--code", type=Path, help="a folder that holds trustdoctor")
    parser.add_argument("--list", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    if options.code is not None:
        sys.path.insert(0, str(options.code.resolve()))
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # one thread
    warnings.simplefilter("ignore")
    walks = measure(options.rows, options.list)
    for name, walk in walks.items() if options.list else ():
        print(f"\n{name}")
        for (file, line, function), times in walk.functions.items():
            print(f"  {file}:{line} {function} ({times})")
    print("| call | functions | files | changes of file | passes over the logits |")
    print("|---|---|---|---|---|")
    for name, walk in walks.items():
        print(
            f"| {name} | {len(walk.functions)} | {len(walk.files)} | {walk.changes:,} "
            f"| {walk.passes} |"
        )


if __name__ == "__main__":
    main()
