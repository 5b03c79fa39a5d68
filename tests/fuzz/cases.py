"""A case: a kind of file, its mutations, and the command that reads it."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz import (
    kinds,
    mutate_arrays,
    mutate_bytes,
    mutate_json,
    mutate_sqlite,
    mutate_tables,
    mutate_text,
)
from fuzz.seeds import Seed

MUTATORS: dict[str, tuple[mutate_bytes.Mutator, ...]] = {
    "csv": mutate_text.TEXT,
    "tsv": mutate_text.TEXT,
    "truth": mutate_text.TEXT,
    "names": mutate_text.TEXT,
    "csv.gz": (mutate_text.packed,),
    "parquet": mutate_tables.PARQUET,
    "arrow": mutate_tables.ARROW,
    "jsonl": mutate_json.LINES,
    "responses": mutate_json.LINES,
    "npz": mutate_arrays.ARCHIVE,
    "npy": mutate_arrays.ARRAY,
    "gate": mutate_json.DOCUMENT,
    "state": mutate_json.DOCUMENT,
    "database": mutate_sqlite.STORE,
    "score": mutate_arrays.TENSORS,
    "dataset": mutate_bytes.BYTES,
    "journal": (mutate_bytes.keep,),
    "links": (mutate_bytes.keep,),
}

VERBS = ("screen", "screen", "screen", "diagnose", "calibrate", "check")
SUFFIXES = (".csv", ".parquet", ".jsonl", ".npz", ".tsv", ".arrow", ".csv.gz")
BLIND = 0.25
"""How often a mutation does not know what the bytes mean."""

MOST = 2_000_000
"""Bytes of a mutated file at most: time goes into cases, not into size."""


@dataclass(frozen=True)
class Case:
    """A mutated file, and the command that reads it.

    Attributes
    ----------
    seed, number : int
        The case is made of these two alone.
    name : str
        The kind of file, of `kinds.SEEDS`.
    verb : str
    suffix : str
        Of the file that `screen` writes.
    quiet, page : bool
        Whether nothing is printed, and whether `diagnose` writes a page.
    folder : Path
        Where its files are.
    steps : tuple of str
        The names of the mutators.
    """

    seed: int
    number: int
    name: str
    verb: str
    suffix: str
    quiet: bool
    page: bool
    folder: Path
    steps: tuple[str, ...]

    @property
    def kind(self) -> Seed:
        return kinds.SEEDS[self.name]

    @property
    def rows(self) -> Path:
        return self.folder / (self.kind.rows or self.kind.target)

    @property
    def target(self) -> Path:
        return self.folder / self.kind.target

    def __str__(self) -> str:
        steps = ", ".join(self.steps)
        return f"{self.seed}:{self.number} {self.name} ({steps}) {self.verb}"


def name_of(number: int) -> str:
    """Return the kind of a case: all come in turn."""
    names = list(kinds.SEEDS)
    return names[number % len(names)]


def numbers(cases: int, only: str | None = None, first: int = 0) -> list[int]:
    """Return the numbers of the next cases, of all formats or of one."""
    every = (i for i in range(first, 10**9))
    expected = (i for i in every if only in (None, kinds.SEEDS[name_of(i)].format))
    return [next(expected) for _ in range(cases)]


def _verb(rng: Random, kind: Seed) -> str:
    alone = {"state": "check", "database": "check"}
    alone |= {"dataset": "read", "journal": "resume", "links": "link"}
    if kind.format in alone:
        return alone[kind.format]
    if kind.page:
        return "diagnose"
    if kind.format in ("gate", "score"):
        return rng.choice(("screen", "screen", "check")) if kind.gate else "screen"
    if kind.format == "truth":
        return rng.choice(("diagnose", "calibrate", "screen"))
    return rng.choice(VERBS)


def mutated(rng: Random, kind: Seed, data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a file after a few mutations, and their names."""
    mutators = MUTATORS[kind.format]
    if data.startswith(b"\xff\xfe") and kind.format == "csv":
        mutators = (mutate_text.utf16,)
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        blind = rng.random() < BLIND and kind.format not in ("journal", "links")
        mutate = rng.choice(mutate_bytes.BYTES if blind else mutators)
        changed = mutate(rng, data)
        data = changed if len(changed) <= MOST else changed[:MOST]
        steps.append(mutate.__name__)
    return data, tuple(steps)


def make(seed: int, number: int, folder: Path) -> Case:
    """Write the files of a case into a folder."""
    rng = Random(f"{seed}:{number}")
    name = name_of(number)
    kind = kinds.SEEDS[name]
    data, steps = mutated(rng, kind, kinds.content(name)[kind.target])
    case = Case(
        seed,
        number,
        name,
        _verb(rng, kind),
        rng.choice((_suffix(kind), rng.choice(SUFFIXES))),
        rng.random() < 0.7,
        kind.page or rng.random() < 0.15,
        folder,
        steps,
    )
    for path, content in kinds.content(name).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data if path == kind.target else content)
    return case


def _suffix(kind: Seed) -> str:
    """Return the suffix of output in the format of the input."""
    name = Path(kind.rows or kind.target).name
    suffix = name[name.find(".") :] if "." in name else ".csv"
    return ".npz" if suffix == ".npy" else suffix
