"""Text for spreadsheets, which take a cell that begins with = or + for a formula.

An apostrophe before it makes it text. Numbers stay as they are, and a cell that begins
with apostrophes before such a sign gets one more, so that each can be told again.
"""

import polars as pl

_FORMULA = r"^'*[=+\-@\t\r]"
_ESCAPED = r"^'('*[=+\-@\t\r])"
_NUMBER = r"(?i)^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)(e[+-]?[0-9]+)?$"


def escaped(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table in which no name and no text is a formula.

    Examples
    --------
    >>> rows = pl.LazyFrame({"=a": ["=1+1", "-2.5", "b-c", "'@x"]})
    >>> escaped(rows).collect().to_dict(as_series=False)
    {"'=a": ["'=1+1", '-2.5', 'b-c', "''@x"]}
    """
    names = pl.Series(rows.collect_schema().names(), dtype=pl.String)
    text = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    plain = text.str.contains(_NUMBER) | ~text.str.contains(_FORMULA)
    marked = pl.when(plain).then(text).otherwise(pl.lit("'") + text)
    own = names.to_frame("own").select(plain=_quoted("own")).to_series()
    return rows.with_columns(marked).rename(dict(zip(names, own, strict=True)))


def _quoted(name: str) -> pl.Expr:
    return pl.col(name).str.replace(_FORMULA, "'${0}")


def unescaped(table: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that `escaped` was given, of a table of text."""
    return table.with_columns(pl.col(pl.String).str.replace(_ESCAPED, "${1}"))
