"""The classes of several stages: the same ones, in one order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.opinion.models import class_names_of
from trustdoctor.predictions import UNKNOWN, Predictions


def common_names(
    known: Mapping[str, Predictions], given: Sequence[Any]
) -> tuple[str, ...] | None:
    """Return the names of classes: of the first file that has some, or model."""
    files = (p.class_names for p in known.values())
    models = (class_names_of(one) for one in given)
    return next((names for names in (*files, *models) if names), None)


def require_classes(
    known: Mapping[str, Predictions],
    given: Sequence[Any],
    called: Sequence[str],
    names: tuple[str, ...] | None,
) -> None:
    """Refuse a model that says beforehand that it knows other classes."""
    width = next((p.n_classes for p in known.values()), None)
    for model, name in zip(given, called, strict=True):
        own = class_names_of(model)
        if own is None:
            continue
        if width not in (None, len(own)) or (names and set(names) != set(own)):
            shown = ", ".join(names[:5]) if names else f"{width} classes"
            message = (
                f"expected the same classes in every stage, {shown}; {name} answers "
                f"with {', '.join(own[:5])}. Give stages that know the same classes."
            )
            raise InputError(message)


def align_classes(
    said: Predictions, names: tuple[str, ...] | None, stage: str
) -> Predictions:
    """Return predictions with their classes in the order of these names."""
    if names is None or said.class_names in (None, names):
        return said
    assert said.class_names is not None
    odd = sorted(set(names) ^ set(said.class_names))
    if odd:
        message = (
            f"expected the same classes in every stage, {odd[0]!r} is not in all of "
            f"them ({stage}). Give stages that know the same classes."
        )
        raise InputError(message)
    order = np.array([said.class_names.index(name) for name in names])
    number = np.append(np.argsort(order), UNKNOWN)  # the last is for no label
    labels = None if said.labels is None else number[said.labels]
    return replace(said, logits=said.logits[:, order], labels=labels, class_names=names)
