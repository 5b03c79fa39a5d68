"""Scripts that fill pages: tables, between marks, part by part."""

import argparse
import os
import platform
import sys
import time
from multiprocessing import get_context
from pathlib import Path


def processor():
    """Name the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    fields = cpuinfo.read_text().split("model name") if cpuinfo.exists() else []
    name = fields[1].split("\n")[0].strip("\t: ") if len(fields) > 1 else ""
    return name or platform.machine()


def table(head, lines):
    """Return a table as Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def fill(path, title, texts):
    """Put each part into its place of a page, or at the end where it has none."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"# {title}\n"
    for name, text in texts.items():
        start, end = f"<!-- made: {name} -->", "<!-- end -->"
        if start not in page:
            print(f"{path} had no place {start}: it is at the end now.")
            page += f"\n{start}\n{end}\n"
        before, _, after = page.partition(start)
        page = f"{before}{start}\n\n{text}\n\n{end}{after.partition(end)[2]}"
    path.write_text(page, encoding="utf-8")


def run(parts, page, title, doc):
    """Run the parts that the command line asks for, and write each into the page.

    A part is a function of a pool of processes and what was given; it returns what it
    writes, by place, and what is not as it should be.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=page)
    parser.add_argument("--peers", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(parts)
    if unknown := set(names) - set(parts):
        sys.exit(f"expected parts of {', '.join(parts)}, got {', '.join(unknown)}.")

    def write(texts):
        if options.quick:
            print("\n\n".join(texts.values()), flush=True)
        else:
            fill(options.out, title, texts)

    failures = []
    with get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for name in names:
            start = time.perf_counter()
            texts, part_failures = parts[name](pool, options)
            write(texts)
            failures += part_failures
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        pool.close()
        pool.join()
    words = (
        f"Made by `python benchmarks/{Path(sys.argv[0]).name} SHARED --peers PYTHON` "
        f"in {sum(os.times()[:4]) / 60:.0f} minutes of one core ({processor()}). Seeds "
        "are fixed."
    )
    if names == list(parts):
        write({"head": words})
    if failures:
        sys.exit(f"not as it should be: {'; '.join(failures)}")
