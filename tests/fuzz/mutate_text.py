"""Mutations of text: lines, cells and names of columns."""

import gzip
import zlib
from random import Random

from fuzz import mutate_bytes

CELLS = (
    "", " ", "NaN", "nan", "inf", "-inf", "Infinity", "1e308", "-1e308", "1e309",
    "1e-320", "1e-400", "-0", "0", "1", "-1", "4", "1.0", "0.25", ".5", "5.", "+1",
    " 1 ", "\t1", "\uff11", "٣", "1_000", "1,5", "0,25", "1.000,5", "1 000", "0x10",
    "1e", "e5", "1e5", "1d3", "TRUE", "true", "False", "None", "null", "NULL", "NA",
    "n/a", "#N/A", "-", "50%", "50 %", "1/2", "1;2", "[1, 2]", '"', '""', '"a', 'a"b',
    "'1'", '"1"', '"1\n2"', "a\nb", "\r", "\n", "\0", "1\x002", "\x1b[31mred",
    "\u202eabc", "\u200b", "\ufeff1", "😀", "é", "e\u0301", "İ", "ß", "\ud7ff", "=1+1",
    "cat", "dog", "Cat", " cat", "cat ", "r0", "r1", "yes", "positive", "no",
    str(10**40), str(2**63), str(-(2**63) - 1), str(2**128), "9" * 400, "x" * 70_000,
    "1" + "0" * 400, "0." + "3" * 400, "12:30", "2020-01-01", "P1D", "<b>", "&lt;",
    "{{x}}", "$(id)",
)  # fmt: skip

HEADERS = (
    "", " ", "label", "Label", "labels", "LABEL", "true_label", "id", "region", "text",
    "score", "accepted", "predicted", "correct", "trustdoctor", "line", "logit_0",
    "logit_1", "logit_4", "logit__0", "logit_00", "logit_01", "logit_-1", "logit_1.0",
    "logit_\uff11", "logit_٣", "logit_²", "logit_1e1", "logit_ 1", " logit_1",
    "logit_1 ", "Logit_1", "LOGIT_1", "logit_", "logit_99999999999",
    "logit_" + "9" * 40, "logit-1", "logits_0", "logit.0", "logits", "probs", "prob",
    "prob_0", "prob_1", "prob_cat", "prob_Cat", "prob_", "prob_ cat",
    "prob_cat_duplicated_0", "prob_cafe\u0301", "logit_0_duplicated_0", "confidence",
    "doubt", "0", "1", "x" * 5_000, "\u202elabel", "\x1b[31m", "\0", "a\nb", 'a"b',
    "a,b", "a;b", "😀", "logit_\u200b1", "feature_0", "\ufefflogit_0", "nan",
    "logit_nan", "logit_True", "*", "^.*$", "{row}", "%s",
)  # fmt: skip


def _separator(data: bytes) -> str:
    head = data.split(b"\n", 1)[0]
    return max(",;\t|", key=lambda sign: head.count(sign.encode()))


def _rows(data: bytes) -> tuple[list[str], str]:
    """Return the lines of a text, and what separates its cells."""
    return data.decode("utf-8", "surrogateescape").split("\n"), _separator(data)


def _joined(rows: list[str]) -> bytes:
    return "\n".join(rows).encode("utf-8", "surrogateescape")


def _quoted(rng: Random, value: str, separator: str) -> str:
    """Return a value as a cell has it; seldom without the quotes that it needs."""
    needs = any(sign in value for sign in (separator, '"', "\n", "\r"))
    if needs and rng.random() < 0.7:
        doubled = value.replace('"', '""')
        return f'"{doubled}"'
    return value


def _set(rng: Random, row: str, value: str, separator: str) -> str:
    cells = row.split(separator)
    cells[rng.randrange(len(cells))] = _quoted(rng, value, separator)
    return separator.join(cells)


def value(rng: Random) -> str:
    """Return a number in one of many notations, or a text that is not a number."""
    if rng.random() < 0.5:
        return rng.choice(CELLS)
    number = rng.choice(
        (rng.random(), rng.gauss(0, 3), rng.gauss(0, 1e5), rng.randint(0, 5))
    )
    forms = (
        "{}",
        "{}",
        "{:.3f}",
        "{:e}",
        "{:+}",
        " {}",
        "{:.25f}",
        "{:g}",
        "{:E}",
        "{} ",
    )
    return rng.choice(forms).format(number)


def cell(rng: Random, data: bytes) -> bytes:
    """Put another value into one cell, or into a few."""
    rows, separator = _rows(data)
    for _ in range(rng.choice((1, 1, 1, 3))):
        at = rng.randrange(len(rows))
        rows[at] = _set(rng, rows[at], value(rng), separator)
    return _joined(rows)


def column(rng: Random, data: bytes) -> bytes:
    """Put one value into every cell of a column."""
    rows, separator = _rows(data)
    new = _quoted(rng, value(rng), separator)
    at = rng.randrange(rows[0].count(separator) + 1)
    for i in range(1, len(rows)):
        cells = rows[i].split(separator)
        if at < len(cells):
            cells[at] = new
            rows[i] = separator.join(cells)
    return _joined(rows)


def more(rng: Random, data: bytes) -> bytes:
    """Add another column, which must not matter."""
    rows, separator = _rows(data)
    same = _quoted(rng, value(rng), separator) if rng.random() < 0.5 else None
    name = rng.choice((*HEADERS, "note", "weight", "a b"))
    out = [rows[0] + separator + _quoted(rng, name, separator)]
    for row in rows[1:]:
        new = _quoted(rng, value(rng), separator) if same is None else same
        out.append(row + separator + new if row else row)
    return _joined(out)


def header(rng: Random, data: bytes) -> bytes:
    rows, separator = _rows(data)
    rows[0] = _set(rng, rows[0], rng.choice(HEADERS), separator)
    return _joined(rows)


def rename(rng: Random, data: bytes) -> bytes:
    """Change a character of the first line."""
    rows, _ = _rows(data)
    at = rng.randrange(len(rows[0]) + 1)
    sign = rng.choice(("", "0", "_", " ", "\uff11", '"', "A", "\t", ",", ";", "\x07"))
    rows[0] = rows[0][:at] + sign + rows[0][at + rng.randrange(2) :]
    return _joined(rows)


def cells(rng: Random, data: bytes) -> bytes:
    """Swap two cells, drop one, or add one."""
    rows, separator = _rows(data)
    at = rng.randrange(len(rows))
    row_cells = rows[at].split(separator)
    i, j = rng.randrange(len(row_cells)), rng.randrange(len(row_cells))
    change = rng.randrange(3)
    if change == 0:
        row_cells[i], row_cells[j] = row_cells[j], row_cells[i]
    elif change == 1:
        del row_cells[i]
    else:
        row_cells.insert(i, row_cells[j])
    rows[at] = separator.join(row_cells)
    return _joined(rows)


def shuffle(rng: Random, data: bytes) -> bytes:
    """Swap, drop or repeat lines; the header is one of them."""
    rows, _ = _rows(data)
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    change = rng.randrange(4)
    if change == 0:
        rows[i], rows[j] = rows[j], rows[i]
    elif change == 1:
        del rows[i]
    elif change == 2:
        rows[i:i] = [rows[j]] * rng.choice((1, 2, 50))
    else:
        rows = rows[:1] + rows[min(i, j) :]
    return _joined(rows)


def blank(rng: Random, data: bytes) -> bytes:
    rows, separator = _rows(data)
    empty = ("", "", " ", separator, separator * rows[0].count(separator), "#", '""')
    rows.insert(rng.randrange(len(rows) + 1), rng.choice(empty))
    return _joined(rows)


def endings(rng: Random, data: bytes) -> bytes:
    ending = rng.choice(
        (b"\r\n", b"\r", b"\n\n", b"\r\r\n", "\u2028".encode(), b"\x0b")
    )
    if rng.random() < 0.5:
        return data.replace(b"\n", ending)
    return data.replace(b"\n", ending, rng.randint(1, 20))


def separators(rng: Random, data: bytes) -> bytes:
    current = _separator(data).encode()
    other = rng.choice((b",", b";", b"\t", b"|", b" ", b",,", b", ", b":"))
    return data.replace(current, other, rng.choice((-1, -1, 1, 5)))


def encoding(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    names = ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "utf-7", "cp1252")
    return text.encode(rng.choice(names), "replace")


def preface(rng: Random, data: bytes) -> bytes:
    first = ("sep=;", "sep=,", 'sep="', "sep=\0", '"sep=,"', "# a note", "sep=é", '"')
    return rng.choice(first).encode() + rng.choice((b"\n", b"\r\n", b"")) + data


def cut(rng: Random, data: bytes) -> bytes:
    """Cut the last line short, or leave out some of its values."""
    body = data.rstrip(b"\r\n")
    begin = body.rfind(b"\n") + 1
    end = begin + rng.randrange(len(body) - begin + 1)
    return body[:end] + rng.choice((b"", b"", b"\n", b"\r", b"\r\n"))


def bomb(rng: Random, data: bytes) -> bytes:
    """Pack a line, or a header, that unpacks to more than a parser should take."""
    rows, separator = _rows(data)
    at = rng.randrange(len(rows))
    fill = rng.choice(("1", "x", separator, '"', "\n", "1" + separator, "[", '""'))
    mark = rng.choice(("", '"', "{"))
    rows[at] += mark + fill * (rng.choice((1 << 16, 1 << 20, 20 << 20)) // len(fill))
    return gzip.compress(_joined(rows), 1, mtime=0)


TEXT: tuple[mutate_bytes.Mutator, ...] = (
    cell, cell, cell, cell, cell, column, more, more, header, header, rename, cells,
    shuffle, shuffle, blank, endings, separators, encoding, preface, cut, cut, bomb,
)  # fmt: skip


def packed(rng: Random, data: bytes) -> bytes:
    """Change a packed text: what is inside, how it is packed, or its bytes."""
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return rng.choice(mutate_bytes.BYTES)(rng, data)
    chance = rng.random()
    if chance < 0.1:
        return bomb(rng, inner)
    if chance < 0.8:
        return gzip.compress(rng.choice(TEXT)(rng, inner), mtime=0)
    if chance < 0.9:
        return data + gzip.compress(rng.choice((b"", inner, b"\n")), mtime=0)
    return rng.choice((inner, data + rng.randbytes(9), gzip.compress(data, mtime=0)))


def utf16(rng: Random, data: bytes) -> bytes:
    """Change what a text in UTF-16 says."""
    inner = data.decode("utf-16", "replace").encode()
    changed = rng.choice(TEXT)(rng, inner)
    return changed.decode("utf-8", "replace").encode("utf-16")
