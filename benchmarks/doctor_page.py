"""Writes docs/what-doctor-does.md from the experiments of `trustdoctor reproduce`.

``python benchmarks/doctor_page.py ../shared --out docs/what-doctor-does.md``; the
folder holds the paper's authors' CIFAR-10 predictions and others.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import trustdoctor as td
from trustdoctor.reproduce import Options, Table, reproduce

PAGE = Path(__file__).with_name("what-doctor-does.md.in")


def rows_of(table, *columns, keep=lambda _row: True, drop=()):
    """Return some rows and columns of a table as Markdown."""
    columns_shown = [
        i for i, name in enumerate(table.columns) if name.replace("\n", " ") not in drop
    ]
    names = tuple(table.columns[i].replace("\n", " ") for i in columns_shown)
    rows = tuple(
        tuple(row[i] for i in columns_shown) for row in table.rows if keep(row)
    )
    text = Table("", columns or names, rows).to_markdown()
    return text.split("\n\n", 1)[1]


def authors_table(report):
    (table,) = (t for t in report.tables if "densenet:" in t.title)
    return table


def public_nets(report):
    """Return the table of the public nets on CIFAR-100."""
    (table,) = (t for t in report.tables if t.title.startswith("CIFAR-100: "))
    return table


def make(folder):
    """Run the experiments and fill the page."""
    stored = Path(folder) / "reference" / "cifar10-densenet-tbb.npz"
    stores = [
        Options(data=Path(folder) / name) for name in ("predictions", "reference")
    ]
    ours, theirs = (reproduce("table1", store) for store in stores)
    intervals = reproduce("intervals", Options(predictions=stored))
    gaussian = reproduce("gaussian")
    histograms = [reproduce("histograms", store).tables[-1] for store in stores]
    authors = authors_table(theirs)
    (imdb,) = (t for t in ours.tables if t.title.startswith("IMDb"))
    return PAGE.read_text(encoding="utf-8").format(
        scores=rows_of(
            authors,
            keep=lambda row: row[1] == "TBB" and row[0] in ("alpha", "beta", "sr"),
        ),
        nets=rows_of(public_nets(ours), keep=lambda row: row[2] != "beta"),
        imdb=f"AUROC {imdb.cells()[1][3]} and FRR95 {imdb.cells()[1][5]}",
        perturbed=protocols(Path(folder)),
        turned=turned(Path(folder)),
        rises=rows_of(
            replace(histograms[0], rows=sum((t.rows for t in histograms), ()))
        ),
        grid=rows_of(intervals.tables[0], keep=lambda row: row[0] in (1000, 10_000)),
        ones=intervals.words.split("probability of ")[1].split(" of the rows")[0],
        exact=rows_of(intervals.tables[1]),
        gaussian=rows_of(gaussian.tables[0]),
        proposition=rows_of(
            gaussian.tables[3],
            drop=("variance 16",),
            keep=lambda row: row[1] is not None,
        ),
    )


def both_protocols(folder):
    clean, moved = (
        td.read(
            folder / "reference" / f"cifar10-densenet-{name}.npz",
            probs="values",
            labels="label",
        )
        for name in ("tbb", "pbb-alpha-T1-eps0.00035")
    )
    doubts = td.alpha(moved)  # of the whole output: alike about either prediction
    return (
        clean,
        moved,
        td.evaluate_perturbed(doubts, clean.errors, moved.errors, doubts),
        td.evaluate_perturbed(td.alpha(clean), clean.errors),
    )


def protocols(folder):
    """Return both protocols with both accuracies, as Markdown."""
    from trustdoctor.reproduce.report import in_percent

    _, _, pbb, tbb = both_protocols(folder)
    rows = []
    for words, result in (
        ("alpha, TBB", tbb.deployed),
        ("alpha, PBB, errors of the perturbed prediction (`paper`)", pbb.paper),
        ("alpha, PBB, errors of the clean prediction (`deployed`)", pbb.deployed),
    ):
        metrics = (result.metrics["auroc"], result.metrics["frr_at_trr"])
        rows.append((words, 100 * result.accuracy.value, *map(in_percent, metrics)))
    table = Table("", ("", "accuracy", "AUROC", "FRR95"), tuple(rows))
    return table.to_markdown().split("\n\n", 1)[1]


def turned(folder):
    clean, moved, *_ = both_protocols(folder)
    right = ~clean.errors
    return f"{int((moved.errors & right).sum())} of the {int(right.sum()):,}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(make(options.data), encoding="utf-8")


if __name__ == "__main__":
    main()
