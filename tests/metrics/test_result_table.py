"""A result as text, Markdown, LaTeX, a frame and HTML says the same everywhere."""

import re
from html.parser import HTMLParser

from trustdoctor.metrics import Estimate, ResultTable, html_facts

COLUMNS = {"score": "score", "auroc": "AUROC", "gain": "gain", "n": "rows"}
ROWS = [
    {"score": "alpha", "auroc": Estimate(0.91, 0.9, 0.92), "gain": None, "n": 1200},
    {
        "score": "a_b & 5%|<x>",
        "auroc": Estimate(None),
        "gain": Estimate(0.01, -0.02, 0.04),
        "n": 3,
    },
]
TABLE = ResultTable(COLUMNS, ROWS, signed=frozenset({"gain"}))
CELLS = [
    ["score", "AUROC", "gain", "rows"],
    ["alpha", "91.00 [90.00, 92.00]", "-", "1,200"],
    ["a_b & 5%|<x>", "-", "+1.00 [-2.00, +4.00]", "3"],
]


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows = []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - as the base calls it
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        self.rows[-1].append(data)


def test_text_is_aligned():
    lines = TABLE.to_text().splitlines()
    assert [re.split(r"\s{2,}", line.strip()) for line in lines] == CELLS
    assert lines[1].startswith("alpha ")
    assert len({len(line) for line in lines}) == 1


def test_markdown_escapes_bars():
    lines = TABLE.to_markdown().splitlines()
    rows = [
        [
            cell.strip().replace(r"\|", "|")
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]
        ]
        for line in lines
    ]
    assert [rows[0], *rows[2:]] == CELLS
    assert set(rows[1]) == {"---"}


def test_latex_escapes_what_is_special():
    latex = TABLE.to_latex()
    assert latex.startswith("\\begin{tabular}{lrrr}\n\\toprule\nscore & AUROC & gain")
    assert r"a\_b \& 5\%|\textless{}x\textgreater{} & - & +1.00" in latex
    assert latex.endswith("\\bottomrule\n\\end{tabular}")


def test_html_holds_the_cells_and_no_markup_of_theirs():
    parser = Cells()
    parser.feed(TABLE.to_html())
    assert parser.rows == CELLS
    facts = Cells()
    facts.feed(html_facts({"promise": "at most <5%>"}))
    assert facts.rows == [["promise", "at most <5%>"]]


def test_a_frame_has_a_column_for_each_number():
    frame = TABLE.to_frame()
    assert frame.columns[:4] == ["score", "auroc", "auroc_low", "auroc_high"]
    assert frame["auroc"].to_list() == [0.91, None]
    assert frame["gain_high"].to_list() == [None, 0.04]
    assert frame["n"].to_list() == [1200, 3]
