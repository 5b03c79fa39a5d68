"""A result as a table: as text, as a frame, for a paper, for a notebook."""

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trustdoctor.metrics.intervals import Estimate

if TYPE_CHECKING:
    import polars as pl

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: rf"\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class ResultTable:
    """Rows of a result; cells are texts, numbers or estimates.

    Attributes
    ----------
    columns : dict of str to str
        The title of each column.
    rows : sequence of dict
        The cells by the names of the columns; None for what does not exist.
    signed : set of str
        Columns of differences, whose estimates have a sign.

    Examples
    --------
    >>> cells = {"score": "alpha", "auroc": Estimate(0.9167, 0.9092, 0.9236)}
    >>> print(ResultTable({"score": "score", "auroc": "AUROC"}, [cells]).to_text())
    score                 AUROC
    alpha  91.67 [90.92, 92.36]
    """

    columns: dict[str, str]
    rows: Sequence[dict[str, Any]]
    signed: frozenset[str] = frozenset()

    def to_frame(self) -> "pl.DataFrame":
        """Return a polars table; an estimate has columns NAME, NAME_low, NAME_high."""
        import polars as pl

        flat: list[dict[str, Any]] = []
        for row in self.rows:
            cells: dict[str, Any] = {}
            for name in self.columns:
                value = row.get(name)
                if isinstance(value, Estimate):
                    cells |= {
                        name: value.value,
                        f"{name}_low": value.low,
                        f"{name}_high": value.high,
                    }
                else:
                    cells[name] = value
            flat.append(cells)
        return pl.DataFrame(flat, infer_schema_length=None)

    def to_text(self) -> str:
        """Return the table as lines of text; the first column on the left."""
        lines = [list(self.columns.values()), *self._shown_rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def to_markdown(self) -> str:
        """Return the table in Markdown; estimates are percentages."""
        titles = list(self.columns.values())
        lines = [titles, ["---"] * len(titles), *self._shown_rows()]
        return "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
            for line in lines
        )

    def to_latex(self) -> str:
        """Return a tabular for the package booktabs; estimates are percentages."""
        titles = list(self.columns.values())
        lines = [
            " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in line)
            + r" \\"
            for line in (titles, *self._shown_rows())
        ]
        columns = "l" + "r" * (len(titles) - 1)
        return "\n".join(
            [
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
            ]
        )

    def to_html(self) -> str:
        """Return the table in HTML, for a notebook."""

        def line(tag: str, cells: Sequence[str]) -> str:
            return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

        head = line("th", list(self.columns.values()))
        body = "".join(f"<tr>{line('td', row)}</tr>" for row in self._shown_rows())
        head = f"<thead><tr>{head}</tr></thead>" if any(self.columns.values()) else ""
        return f"<table>{head}<tbody>{body}</tbody></table>"

    def _shown_rows(self) -> list[list[str]]:
        return [
            [_shown(row.get(name), sign=name in self.signed) for name in self.columns]
            for row in self.rows
        ]


class Tabular(ABC):
    """A result that can be shown and cited as a table."""

    @abstractmethod
    def table(self) -> ResultTable:
        """Return the table."""

    def to_frame(self) -> "pl.DataFrame":
        """Return the table in polars; an estimate has NAME, NAME_low and NAME_high."""
        return self.table().to_frame()

    def to_markdown(self) -> str:
        """Return the table in Markdown; estimates are percentages."""
        return self.table().to_markdown()

    def to_latex(self) -> str:
        """Return a tabular for the package booktabs; estimates are percentages."""
        return self.table().to_latex()

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return self.table().to_html()


def html_facts(facts: dict[str, str]) -> str:
    """Return what an object is in HTML, for a notebook: a name and a text per line.

    Examples
    --------
    >>> html_facts({"promise": "at most 5%"})
    '<table><tbody><tr><td>promise</td><td>at most 5%</td></tr></tbody></table>'
    """
    rows = [{"name": name, "text": text} for name, text in facts.items()]
    return ResultTable({"name": "", "text": ""}, rows).to_html()


def _shown(value: Any, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    if isinstance(value, Estimate):
        return value.percent(sign=sign)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
