"""Every kind of file that is mutated, by its name."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from fuzz import check_datasets, seeds
from fuzz.seeds import CHOICES, NAMES, Seed

FLOAT32 = [pl.col(f"logit_{i}").cast(pl.Float32) for i in range(4)]
CONFIDENT = {"confidence": "confidence", "correct": "correct"}
BINARY = {"probs": "prob", "positive": "yes"}
CHOSEN = {"choices": ",".join(CHOICES)}


def _single_file(
    format: str, name: str, content: Callable[[], bytes], **more: Any
) -> Seed:
    """Return a kind whose cases have one file."""
    return Seed(format, name, lambda: {name: content()}, **more)


def _several_files(
    format: str, target: str, files: dict[str, Callable[[], bytes]], **more: Any
) -> Seed:
    """Return a kind whose cases have several files; the target is mutated."""
    return Seed(format, target, lambda: {n: f() for n, f in files.items()}, **more)


def _text(name: str, table: Any, *dialect: Any, **more: Any) -> Seed:
    comma = more.pop("comma", False)
    kind = "tsv" if name.endswith(".tsv") else "csv"
    return _single_file(
        kind, name, lambda: seeds.text(table(), *dialect, comma=comma), **more
    )


def _packed() -> bytes:
    return gzip.compress(seeds.text(seeds.plain_table()), mtime=0)


def _utf16() -> bytes:
    return seeds.text(seeds.probs_table(), "\t").decode().encode("utf-16")


def _fixed() -> bytes:
    kind = pl.Array(pl.Float32, 4)
    return seeds.parquet(seeds.lists_table().cast({"logits": kind}), compression="zstd")


def _odd_types() -> bytes:
    table = seeds.logits_table().with_columns(pl.col("region").cast(pl.Categorical))
    return seeds.by_polars(table.with_columns(*FLOAT32))


def _objects(table: pl.DataFrame) -> bytes:
    return seeds.lines(table.iter_rows(named=True))


FILES: dict[str, Seed] = {
    "csv": _text("rows.csv", seeds.logits_table),
    "csv, plain": _text("rows.csv", seeds.plain_table, options={"groups": "region"}),
    "csv, quantised": _text("rows.csv", seeds.quantised_table),
    "parquet, quantised": _single_file(
        "parquet",
        "rows.parquet",
        lambda: seeds.by_polars(seeds.quantised_table().with_columns(*FLOAT32)),
    ),
    "csv, names": _text("rows.csv", seeds.probs_table),
    "csv, semicolons": _text("rows.csv", seeds.probs_table, ";", comma=True),
    "csv, answers": _text(
        "rows.csv", seeds.answers_table, options=CONFIDENT, score="confidence"
    ),
    "csv, binary": _text("rows.csv", seeds.binary_table, options=BINARY),
    "csv, UTF-16": _single_file("csv", "rows.csv", _utf16),
    "csv, folder": _several_files(
        "csv",
        "rows/b.csv",
        {
            "rows/a.csv": lambda: seeds.text(seeds.plain_table()),
            "rows/b.csv": lambda: seeds.text(seeds.plain_table(20)),
        },
        rows="rows",
    ),
    "tsv": _text("rows.tsv", seeds.probs_table, "\t"),
    "csv.gz": _single_file("csv.gz", "rows.csv.gz", _packed),
    "parquet": _single_file(
        "parquet",
        "rows.parquet",
        lambda: seeds.parquet(seeds.logits_table(), compression="none"),
    ),
    "parquet, polars": _single_file("parquet", "rows.parquet", _odd_types),
    "parquet, lists": _single_file(
        "parquet", "rows.parquet", lambda: seeds.parquet(seeds.lists_table(300))
    ),
    "parquet, fixed lists": _single_file("parquet", "rows.parquet", _fixed),
    "parquet, folder": _several_files(
        "parquet",
        "rows/b.parquet",
        {
            "rows/a.parquet": lambda: seeds.by_polars(seeds.plain_table()),
            "rows/b.parquet": lambda: seeds.by_polars(seeds.plain_table(20)),
        },
        rows="rows",
    ),
    "arrow": _single_file(
        "arrow", "rows.arrow", lambda: seeds.arrow(seeds.logits_table())
    ),
    "arrow, lists": _single_file(
        "arrow", "rows.arrow", lambda: seeds.arrow(seeds.lists_table(), "zstd")
    ),
    "feather": _single_file(
        "arrow", "rows.feather", lambda: seeds.feather(seeds.probs_table())
    ),
    "jsonl": _single_file(
        "jsonl", "rows.jsonl", lambda: _objects(seeds.logits_table())
    ),
    "jsonl, lists": _single_file(
        "jsonl", "rows.jsonl", lambda: _objects(seeds.lists_table())
    ),
    "jsonl, answers": _single_file(
        "jsonl",
        "rows.jsonl",
        lambda: _objects(seeds.answers_table()),
        options=CONFIDENT,
        score="confidence",
    ),
    "npz": _single_file("npz", "rows.npz", lambda: seeds.npz(**seeds.arrays())),
    "npz, packed": _single_file(
        "npz",
        "rows.npz",
        lambda: seeds.npz(np.savez_compressed, **seeds.arrays(np.float32)),
    ),
    "npz, by column": _single_file(
        "npz", "rows.npz", seeds.named_arrays, options={"class_names": NAMES}
    ),
    "npz, perturbed": _single_file(
        "npz",
        "rows.npz",
        lambda: seeds.npz(**seeds.arrays(), **seeds.perturbed()),
        page=True,
    ),
    "npy": _several_files(
        "npy",
        "rows/logits.npy",
        {
            "rows/logits.npy": lambda: seeds.npy(seeds.arrays()["logits"]),
            "rows/labels.npy": lambda: seeds.npy(seeds.arrays()["labels"]),
        },
        rows="rows",
    ),
    "npy, labels": _several_files(
        "npy",
        "rows/labels.npy",
        {
            "rows/logits.npy": lambda: seeds.npy(seeds.arrays(np.float16)["logits"]),
            "rows/labels.npy": lambda: seeds.npy(seeds.arrays()["labels"]),
        },
        rows="rows/logits.npy",
    ),
}
"""Predictions."""


def _answered(content: Callable[[], bytes], target: str, format: str) -> Seed:
    files = {"rows.jsonl": content, "truth.csv": lambda: seeds.text(seeds.truth())}
    options = {**CHOSEN, "truth": "truth.csv"}
    return _several_files(
        format, target, files, rows="rows.jsonl", options=options, score="confidence"
    )


def _gated(kind: str, format: str) -> Seed:
    """Return a gate, or the state of a watch of one, with rows to decide on."""
    tables = {
        "groups": (seeds.plain_table, {"groups": "region"}),
        "confidence": (seeds.answers_table, CONFIDENT),
    }
    table, options = tables.get(kind, (seeds.plain_table, {}))
    files = {
        "rows.csv": lambda: seeds.text(table()),
        "gate.json": lambda: seeds.gate(kind),
    }
    target = "state.db" if format == "database" else f"{format}.json"
    if format != "gate":
        files[target] = lambda: seeds.state(kind, target)
    return _several_files(
        format,
        target,
        files,
        rows="rows.csv",
        options=options,
        gate="gate.json",
    )


BESIDE: dict[str, Seed] = {
    "responses": _answered(seeds.responses, "rows.jsonl", "responses"),
    "responses, batch": _answered(seeds.batch, "rows.jsonl", "responses"),
    "truth": _answered(seeds.responses, "truth.csv", "truth"),
    "truth, rows": _several_files(
        "truth",
        "truth.csv",
        {
            "rows.csv": lambda: seeds.text(seeds.plain_table().drop("label")),
            "truth.csv": lambda: seeds.text(seeds.truth(4, range(4))),
        },
        rows="rows.csv",
        options={"truth": "truth.csv", "ids": "id"},
    ),
    "journal": replace(FILES["csv, folder"], format="journal"),
    "links": replace(FILES["csv, folder"], format="links"),
    "names": _several_files(
        "names",
        "names.txt",
        {
            "rows.csv": lambda: seeds.text(seeds.plain_table()),
            "names.txt": lambda: "\n".join(NAMES).encode(),
        },
        rows="rows.csv",
        options={"names_file": "names.txt"},
    ),
    "fitted score": _several_files(
        "score",
        "score.safetensors",
        {
            "rows.csv": lambda: seeds.text(seeds.plain_table()),
            "score.safetensors": seeds.fitted,
        },
        rows="rows.csv",
        score="score.safetensors",
    ),
    **{
        f"gate, {kind}": _gated(kind, "gate")
        for kind in (
            "plain", "risk", "groups", "classes", "fitted", "confidence", "threshold",
        )
    },
    **{
        f"{format}, {kind}": _gated(kind, format)
        for format in ("state", "database")
        for kind in ("plain", "groups", "confidence")
    },
}  # fmt: skip
"""Files beside predictions: gates, watches, scores, names, true labels."""

DATASETS: dict[str, Seed] = {
    "dataset, pickle": _single_file("dataset", "batch", check_datasets.cifar),
    "dataset, pickle 5": _single_file(
        "dataset", "batch", lambda: check_datasets.cifar(5)
    ),
    "dataset, matlab": _single_file(
        "dataset", "test_32x32.mat", lambda: check_datasets.svhn(packed=False)
    ),
    "dataset, packed matlab": _single_file(
        "dataset", "test_32x32.mat", lambda: check_datasets.svhn(packed=True)
    ),
    "dataset, idx": _several_files(
        "dataset",
        "t10k-images-idx3-ubyte",
        {
            "t10k-images-idx3-ubyte": lambda: check_datasets.idx(3, 28, 28),
            "t10k-labels-idx1-ubyte": lambda: check_datasets.idx(3),
        },
    ),
    "dataset, reviews": _single_file(
        "dataset", "reviews.json.gz", check_datasets.reviews
    ),
}
"""What `reproduce` reads."""

SEEDS = FILES | BESIDE | DATASETS


@cache
def content(name: str) -> dict[str, bytes]:
    """Return the files of a kind before any mutation."""
    return SEEDS[name].files()


def formats() -> list[str]:
    return sorted({seed.format for seed in SEEDS.values()})
