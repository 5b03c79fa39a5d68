"""Documents with each of their values changed, taken away or given twice."""

import copy
import json

import msgspec
from msgspec import structs

VALUES = (
    None, True, -1, 0, 0.5, 1e308, 5e-324, 10**400, 1 << 63, "x", "inf", "nan", [], {},
    [1], ["a", "a"], [[[[[]]]]],
)  # fmt: skip


def places(content, at=()):
    """Yield where values are; of a list the first three."""
    if at:
        yield at
    items = ()
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = list(enumerate(content))[:3]
    for key, value in items:
        yield from places(value, (*at, key))


def _change(content, at, change):
    out = inner = copy.deepcopy(content)
    for key in at[:-1]:
        inner = inner[key]
    change(inner, at[-1])
    return out


def _set(value):
    def change(inner, key):
        inner[key] = value

    return change


def _delete(inner, key):
    del inner[key]


def _repeat(inner, key):
    inner.insert(key, inner[key])


def mutants(content):
    """Yield (what was done, the text) of every change."""
    for at in places(content):
        changes = {repr(value): _set(value) for value in VALUES}
        changes["deleted"] = _delete
        if isinstance(at[-1], int):
            changes["repeated"] = _repeat
        for name, change in changes.items():
            yield (*at, name), json.dumps(_change(content, at, change))
        if isinstance(at[-1], str):
            yield (*at, "twice"), _twice(content, at)


def _twice(content, at):
    """Return the text with one key written twice, its value the same."""
    marked = json.dumps(_change(content, at, lambda c, k: c.update({f"{k}#": c[k]})))
    return marked.replace(f'"{at[-1]}#"', f'"{at[-1]}"')


def same(first, second):
    """Compare two documents; true is not 1."""
    if isinstance(first, dict) and isinstance(second, dict):
        same_keys = first.keys() == second.keys()
        return same_keys and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return (first is second) if bool in {type(first), type(second)} else first == second


def without_defaults(content, kind):
    """Return a document without the fields that say what their absence says, too."""
    defaults = {
        field.name: msgspec.json.decode(msgspec.json.encode(field.default))
        for field in structs.fields(kind)
        if field.default is not msgspec.NODEFAULT
    }
    return {k: v for k, v in content.items() if k not in defaults or v != defaults[k]}
