"""Every kind of file that is mutated, by a name of its own."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from fuzz import datasets, seeds
from fuzz.seeds import CHOICES, NAMES, Seed

FLOAT32 = [pl.col(f"logit_{i}").cast(pl.Float32) for i in range(4)]
CONFIDENT = {"confidence": "confidence", "correct": "correct"}
BINARY = {"probs": "prob", "positive": "yes"}
CHOSEN = {"choices": ",".join(CHOICES)}


def _one(format: str, name: str, content: Callable[[], bytes], **more: Any) -> Seed:
    """Return a kind of which a case has one file."""
    return Seed(format, name, lambda: {name: content()}, **more)


def _beside(
    format: str, target: str, files: dict[str, Callable[[], bytes]], **more: Any
) -> Seed:
    """Return a kind of which a case has several files; the target is mutated."""
    return Seed(format, target, lambda: {n: f() for n, f in files.items()}, **more)


def _text(name: str, table: Any, *how: Any, **more: Any) -> Seed:
    comma = more.pop("comma", False)
    kind = "tsv" if name.endswith(".tsv") else "csv"
    return _one(kind, name, lambda: seeds.text(table(), *how, comma=comma), **more)


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
    "parquet, quantised": _one(
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
    "csv, UTF-16": _one("csv", "rows.csv", _utf16),
    "csv, folder": _beside(
        "csv",
        "rows/b.csv",
        {
            "rows/a.csv": lambda: seeds.text(seeds.plain_table()),
            "rows/b.csv": lambda: seeds.text(seeds.plain_table(20)),
        },
        rows="rows",
    ),
    "tsv": _text("rows.tsv", seeds.probs_table, "\t"),
    "csv.gz": _one("csv.gz", "rows.csv.gz", _packed),
    "parquet": _one(
        "parquet",
        "rows.parquet",
        lambda: seeds.parquet(seeds.logits_table(), compression="none"),
    ),
    "parquet, polars": _one("parquet", "rows.parquet", _odd_types),
    "parquet, lists": _one(
        "parquet", "rows.parquet", lambda: seeds.parquet(seeds.lists_table(300))
    ),
    "parquet, fixed lists": _one("parquet", "rows.parquet", _fixed),
    "parquet, folder": _beside(
        "parquet",
        "rows/b.parquet",
        {
            "rows/a.parquet": lambda: seeds.by_polars(seeds.plain_table()),
            "rows/b.parquet": lambda: seeds.by_polars(seeds.plain_table(20)),
        },
        rows="rows",
    ),
    "arrow": _one("arrow", "rows.arrow", lambda: seeds.arrow(seeds.logits_table())),
    "arrow, lists": _one(
        "arrow", "rows.arrow", lambda: seeds.arrow(seeds.lists_table(), "zstd")
    ),
    "feather": _one(
        "arrow", "rows.feather", lambda: seeds.feather(seeds.probs_table())
    ),
    "jsonl": _one("jsonl", "rows.jsonl", lambda: _objects(seeds.logits_table())),
    "jsonl, lists": _one("jsonl", "rows.jsonl", lambda: _objects(seeds.lists_table())),
    "jsonl, answers": _one(
        "jsonl",
        "rows.jsonl",
        lambda: _objects(seeds.answers_table()),
        options=CONFIDENT,
        score="confidence",
    ),
    "npz": _one("npz", "rows.npz", lambda: seeds.npz(**seeds.arrays())),
    "npz, packed": _one(
        "npz",
        "rows.npz",
        lambda: seeds.npz(np.savez_compressed, **seeds.arrays(np.float32)),
    ),
    "npz, by column": _one(
        "npz", "rows.npz", seeds.named_arrays, options={"class_names": NAMES}
    ),
    "npz, perturbed": _one(
        "npz",
        "rows.npz",
        lambda: seeds.npz(**seeds.arrays(), **seeds.perturbed()),
        page=True,
    ),
    "npy": _beside(
        "npy",
        "rows/logits.npy",
        {
            "rows/logits.npy": lambda: seeds.npy(seeds.arrays()["logits"]),
            "rows/labels.npy": lambda: seeds.npy(seeds.arrays()["labels"]),
        },
        rows="rows",
    ),
    "npy, labels": _beside(
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
    return _beside(
        format, target, files, rows="rows.jsonl", options=options, score="confidence"
    )


def _gated(kind: str, format: str) -> Seed:
    """Return a gate, or the state of a watch of one, with rows to decide on."""
    own = {
        "groups": (seeds.plain_table, {"groups": "region"}),
        "confidence": (seeds.answers_table, CONFIDENT),
    }
    table, options = own.get(kind, (seeds.plain_table, {}))
    files = {
        "rows.csv": lambda: seeds.text(table()),
        "gate.json": lambda: seeds.gate(kind),
    }
    target = "state.db" if format == "database" else f"{format}.json"
    if format != "gate":
        files[target] = lambda: seeds.state(kind, target)
    return _beside(
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
    "truth, rows": _beside(
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
    "names": _beside(
        "names",
        "names.txt",
        {
            "rows.csv": lambda: seeds.text(seeds.plain_table()),
            "names.txt": lambda: "\n".join(NAMES).encode(),
        },
        rows="rows.csv",
        options={"names_file": "names.txt"},
    ),
    "fitted score": _beside(
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
"""What stands beside predictions."""

DATASETS: dict[str, Seed] = {
    "dataset, pickle": _one("dataset", "batch", datasets.cifar),
    "dataset, pickle 5": _one("dataset", "batch", lambda: datasets.cifar(5)),
    "dataset, matlab": _one(
        "dataset", "test_32x32.mat", lambda: datasets.svhn(packed=False)
    ),
    "dataset, packed matlab": _one(
        "dataset", "test_32x32.mat", lambda: datasets.svhn(packed=True)
    ),
    "dataset, idx": _beside(
        "dataset",
        "t10k-images-idx3-ubyte",
        {
            "t10k-images-idx3-ubyte": lambda: datasets.idx(3, 28, 28),
            "t10k-labels-idx1-ubyte": lambda: datasets.idx(3),
        },
    ),
    "dataset, reviews": _one("dataset", "reviews.json.gz", datasets.reviews),
}
"""What `reproduce` reads."""

SEEDS = FILES | BESIDE | DATASETS


@cache
def content(name: str) -> dict[str, bytes]:
    """Return the files of a kind before any mutation."""
    return SEEDS[name].files()


def formats() -> list[str]:
    return sorted({seed.format for seed in SEEDS.values()})
