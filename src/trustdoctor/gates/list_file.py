"""A shortlist as plain values, for a gate's file."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trustdoctor import envelope
from trustdoctor.envelope import check_fields, read_list, read_number, shown
from trustdoctor.errors import FileError
from trustdoctor.gates.shortlists import ListRule, Shortlist

if TYPE_CHECKING:
    from trustdoctor.gates.deciding import Group

_PLAIN = {"level", "n_classes", "method", "penalty", "free", "max_size", "same_rows"}
_RULE = {"threshold", "rows"}


def list_content(short: Shortlist) -> dict[str, Any]:
    """Return a shortlist as plain values."""
    content = {name: value for name, value in asdict(short).items() if name in _PLAIN}
    groups = [{"group": name, **_rule(rule)} for name, rule in short.groups.items()]
    return content | _rule(short.rule) | {"groups": groups}


def _rule(rule: ListRule) -> dict[str, Any]:
    return {"threshold": envelope.number(rule.threshold), "rows": rule.rows}


def read_shortlist(content: Any) -> Shortlist | None:
    """Read what `list_content` wrote, refusing whatever is not understood."""
    if content is None:
        return None
    check_fields(content, _PLAIN | _RULE | {"groups"})
    plain = {name: content[name] for name in _PLAIN}
    if type(plain["same_rows"]) is not bool:
        message = f"expected same_rows as true or false, got {shown(plain)}."
        raise FileError(message)
    groups: dict[Group, ListRule] = {}
    for one in read_list(content["groups"]):
        check_fields(one, _RULE | {"group"})
        group = one["group"]
        if type(group) not in (int, str) or group in groups:
            message = f"expected a group once, by number or name, got {shown(group)}."
            raise FileError(message)
        groups[group] = _read_rule(one)
    return Shortlist(rule=_read_rule(content), groups=groups, **plain)


def _read_rule(content: Any) -> ListRule:
    return ListRule(read_number(content["threshold"]), content["rows"])
