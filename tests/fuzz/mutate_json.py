"""Mutations of JSON: values, keys and structure; by line, and of whole documents."""

import json
from random import Random
from typing import Any

from fuzz import mutate_bytes, mutate_text

INFINITE = float("inf")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 4, 0.0, 0.5, -0.5, 1.0, 1e308, -1e308, 1e-320,
    2**63, -(2**63) - 1, 10**40, 10**400, 1e999, -INFINITE, float("nan"), "", "inf",
    "-inf", "nan", "0.5", "1", "alpha", "msp", "confidence", "mahalanobis",
    "accept-all", "reject-all", "threshold", "predicted", "given", "gate", "watch",
    "frr", "risk", [], {}, [1], [[]], [0.1, 0.2, 0.3, 0.4], {"a": 1}, "x" * 70_000,
    "\x1b[31mred", "\u202eabc", "a\nb", "\0", "😀", "\uff11", "cat", "../gate.json",
    "/etc/passwd", "%s", "{row}", "\ud800", [None], ["inf"], {"": None}, "AAAA", "====",
    "2020-01-01",
)  # fmt: skip


class Raw(str):
    """A text that stands in a document as it is, JSON or not."""

    __slots__ = ()


def _dump(value: Any) -> str:
    """Return JSON in which raw texts stand as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        inner = ", ".join(f"{json.dumps(k)}: {_dump(v)}" for k, v in value)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    if isinstance(value, float) and abs(value) == INFINITE:
        return "1e999" if value > 0 else "-Infinity"
    return json.dumps(value)


class Pairs(list[tuple[str, Any]]):
    """An object as its pairs, so that a key may come twice."""


def _parse(text: str | bytes) -> Any:
    def lists(value: Any) -> Any:
        if isinstance(value, Pairs):
            return Pairs((k, lists(v)) for k, v in value)
        return [lists(v) for v in value] if isinstance(value, list) else value

    return lists(json.loads(text, object_pairs_hook=Pairs))


def _places(value: Any) -> list[tuple[list[Any], int]]:
    """Return every place in a document: the list or object, and the index in it."""
    places = []
    for i, inner in enumerate(value if isinstance(value, list) else []):
        places.append((value, i))
        places += _places(inner[1] if isinstance(value, Pairs) else inner)
    return places


def _deep(rng: Random) -> Raw:
    depth = rng.choice((5, 200, 100_000))
    return Raw(
        rng.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
    )


def _near(rng: Random, value: Any) -> Any:
    """Return a value not far from another."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value)))
    if isinstance(value, (int, float)):
        steps = (
            value + 1,
            -value,
            value * 2,
            value / 3,
            str(value),
            [value],
            float(value),
        )
        return rng.choice((*steps, value + 1e-9, Raw(f"{value}0"), bool(value)))
    if isinstance(value, str):
        other = rng.choice(mutate_text.CELLS)
        return rng.choice((value.upper(), value + " ", value[:-1], value * 2, other))
    return rng.choice((None, [value], Raw(_dump(value) + ","), []))


def _other(rng: Random, value: Any) -> Any:
    chance = rng.random()
    if chance < 0.4:
        return _near(rng, value)
    return _deep(rng) if chance < 0.43 else rng.choice(VALUES)


def _change(rng: Random, tree: Any) -> Any:
    """Replace, drop, repeat, rename or move a part of a document."""
    places = _places(tree)
    if not places:
        return _other(rng, tree)
    inside, at = rng.choice(places)
    keyed = isinstance(inside, Pairs)
    chance = rng.random()
    if chance < 0.6:
        value = inside[at][1] if keyed else inside[at]
        new = _other(rng, value)
        inside[at] = (inside[at][0], new) if keyed else new
    elif chance < 0.72:
        del inside[at]
    elif chance < 0.84:
        duplicate = inside[at]
        if keyed and rng.random() < 0.6:
            duplicate = (duplicate[0], _other(rng, duplicate[1]))
        inside.insert(rng.randrange(len(inside) + 1), duplicate)
    elif chance < 0.92 and keyed:
        names = (*mutate_text.HEADERS, inside[at][0].upper(), inside[at][0] + " ")
        inside[at] = (rng.choice(names), inside[at][1])
    else:
        other, to = rng.choice(places)
        if keyed == isinstance(other, Pairs):
            inside[at], other[to] = other[to], inside[at]
    return tree


def document(rng: Random, data: bytes) -> bytes:
    """Change a document, which stays JSON for the most part."""
    try:
        tree = _parse(data)
    except (ValueError, RecursionError):
        return rng.choice(mutate_bytes.BYTES)(rng, data)
    return (_dump(_change(rng, tree)) + "\n").encode("utf-8", "surrogatepass")


def line(rng: Random, data: bytes) -> bytes:
    """Change one of the objects that stand on lines of their own, or a few."""
    rows = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(rows))
        rows[at] = document(rng, rows[at]).rstrip(b"\n") if rows[at] else rows[at]
    return b"\n".join(rows)


def key(rng: Random, data: bytes) -> bytes:
    """Give one key another name on every line, or drop it."""
    name = rng.choice((b'"logit_0"', b'"logits"', b'"label"', b'"confidence"', b'"id"'))
    other = json.dumps(rng.choice(mutate_text.HEADERS)).encode()
    return data.replace(name, other)


def literal(rng: Random, data: bytes) -> bytes:
    """Write NaN, Infinity or a number in another way, which Python's JSON takes."""
    odd = (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"+1",
        b".5",
        b"1.",
        b"01",
        b"1e5",
        b"0x1",
    )
    digits = [i for i in range(len(data)) if data[i : i + 2] == b": "]
    if not digits:
        return data
    at = rng.choice(digits) + 2
    ends = [e for e in (data.find(b",", at), data.find(b"}", at)) if e > 0]
    end = min(ends, default=len(data))
    return data[:at] + rng.choice(odd) + data[end:]


DOCUMENT: tuple[mutate_bytes.Mutator, ...] = (*[document] * 14, literal)
LINES: tuple[mutate_bytes.Mutator, ...] = (
    *[line] * 10, key, literal, literal, mutate_text.shuffle, mutate_text.shuffle,
    mutate_text.blank, mutate_text.endings, mutate_text.encoding, mutate_text.preface,
)  # fmt: skip
