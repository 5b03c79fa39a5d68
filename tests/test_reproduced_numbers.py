"""Pages that speak of the same numbers have them from docs/reproduction.md."""

import re
from pathlib import Path

import pytest

from trustdoctor.reproduce.sources import printed_net

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "reproduction.md"


def tables(name):
    """Return {title: rows} of a page's tables; several of one title are joined."""
    rows_by_title, title = {}, ""
    for line in (DOCS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            rows_by_title.setdefault(title, []).append(cells)
        elif line.strip():
            title = line.strip("*# ")
    return rows_by_title


@pytest.fixture(scope="module")
def source():
    return tables(PAGE)


def rows_of(source, words):
    (rows,) = (rows for title, rows in source.items() if words in title)
    return rows


def test_what_doctor_does_has_the_authors_rows(source):
    ours = rows_of(source, "authors' own predictions")
    spoken = next(
        rows for rows in tables("what-doctor-does.md").values() if rows[0] == ours[0]
    )
    assert len(spoken) == 5
    for row in spoken[2:]:
        assert row in ours


def test_what_doctor_does_has_the_public_nets(source):
    ours = rows_of(source, "CIFAR-100: 7 public nets")
    spoken = next(
        rows
        for rows in tables("what-doctor-does.md").values()
        if rows[0] == ours[0] and len(rows) > 10
    )
    for row in spoken[2:]:
        assert row in ours


@pytest.mark.parametrize("data", ["CIFAR-10", "CIFAR-100"])
def test_the_leaderboard_has_the_same_softmax_response(source, data):
    rows = rows_of(source, f"{data}: ")
    sr = {
        row[0]: [cell.split(" [")[0] for cell in row[3:5]]
        for row in rows
        if row[2] == "sr"
    }
    table = rows_of(tables("leaderboard.md"), "Six networks of chenyaofo")
    spoken = [row for row in table if row[0] == data.replace("-", "").lower()]
    assert len(spoken) == 6
    for _, model, _, auroc, frr, *_ in spoken:
        assert sr[printed_net(model)] == [auroc, frr], model


def test_the_page_links_pictures_that_are_there():
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    links = re.findall(r"\]\((pictures/reproduction/\S+)\)", text)
    assert links
    assert all((DOCS / link).is_file() for link in links)
    there = {path.name for path in (DOCS / "pictures" / "reproduction").iterdir()}
    assert there == {Path(link).name for link in links}


def test_every_row_of_table_1_is_filled(source):
    for name in ("CIFAR-10", "CIFAR-100", "TinyImageNet", "SVHN"):
        best = [
            {(row[0], row[1]) for row in rows[2:] if row[3] != "-"}
            for title, rows in source.items()
            if title.startswith(f"{name}, ")
            and rows[0][:2] == ["method", "scenario"]
            and "AUROC here" in rows[0]
        ]
        kinds = set().union(*best)
        for method in ("alpha", "beta", "mhlnb"):
            for scenario in ("TBB", "PBB paper", "PBB deployed"):
                assert (method, scenario) in kinds, (name, method, scenario)
        assert {("odin", "TBB"), ("sr", "TBB"), ("energy", "PBB deployed")} <= kinds
