"""Cases in worker processes, so that a crash is noticed, and the case that made it."""

import faulthandler
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from fuzz import capture, cases, oracle
from fuzz.verdicts import Verdict

MEMORY = 700_000_000
"""Bytes that a case may add to what the process had: its files are far smaller."""

ADDRESS_SPACE = 10 << 30
"""Address space of a process at most, so that no case takes the machine's memory."""

TESTS = Path(__file__).parents[1]


class Memory:
    """How far the memory of this process grew since this was made."""

    def __init__(self) -> None:
        self.before = self._status("VmRSS")
        with suppress(OSError):  # from here on the peak is counted
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def grown(self) -> int:
        return self._status("VmHWM") - self.before

    @staticmethod
    def _status(name: str) -> int:
        text = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(text.split(f"{name}:")[1].split()[0])


def run_one(seed: int, number: int, keep: Path | None = None) -> Verdict:
    """Run a case in this process, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{seed}-{number}-"))
    try:
        case = cases.make(seed, number, folder / "case")
        verdict = oracle.judge(case)
        if keep is not None and not verdict.good:
            shutil.copytree(
                folder / "case", keep / f"{seed}-{number}", dirs_exist_ok=True
            )
        return verdict
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work(keep: Path | None) -> None:
    """Run the cases that come in, one per line, and write how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.fdopen(os.dup(2), "w", encoding="utf-8")
    for line in sys.stdin:
        seed, number = map(int, line.split(":"))
        # A library that never returns keeps Python from its signals; this kills it.
        faulthandler.dump_traceback_later(5 * capture.LIMIT, exit=True, file=log)
        memory = Memory()
        verdict = run_one(seed, number, keep)
        grown = memory.grown()
        faulthandler.cancel_dump_traceback_later()
        if verdict.good and grown > MEMORY:
            verdict = Verdict(verdict.case, "memory", f"{grown / 1e6:.0f} MB more")
        record = [verdict.case, verdict.outcome, verdict.detail]
        out.write(json.dumps(record) + "\n")
        out.flush()


class Worker:
    """A process that runs cases; it is started again after a case that kills it."""

    def __init__(self, keep: Path | None) -> None:
        self.arguments = [
            sys.executable,
            "-m",
            "fuzz.pool",
            *([str(keep)] if keep else []),
        ]
        self.process: Any = None

    def _start(self) -> None:
        paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
            "RUST_BACKTRACE": "0",
        }
        self.process = subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=TESTS,
        )

    def run(self, seed: int, number: int) -> Verdict:
        if self.process is None:
            self._start()
        with suppress(BrokenPipeError):  # that it has ended is seen below
            self.process.stdin.write(f"{seed}:{number}\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return Verdict(*json.loads(line))
        _, log = self.process.communicate()
        code, self.process = self.process.returncode, None
        kind = "hang" if "Timeout" in log else "crash"
        case = f"{seed}:{number} {cases.name_of(number)}"
        return Verdict(case, kind, f"exit code {code}; {log[-600:]}")

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()


def run_all(
    seed: int, numbers: list[int], jobs: int, keep: Path | None = None
) -> Iterator[Verdict]:
    """Run cases in `jobs` processes; yield how each ended, in their order."""
    workers: Queue[Worker] = Queue()
    for _ in range(jobs):
        workers.put(Worker(keep))

    def run_number(number: int) -> Verdict:
        worker = workers.get()
        try:
            return worker.run(seed, number)
        finally:
            workers.put(worker)

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(run_number, numbers)
    while not workers.empty():
        workers.get().end()


if __name__ == "__main__":
    work(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
