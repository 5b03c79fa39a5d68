"""How formulas of logits are typed: tensors give tensors, everything else numpy."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from numpy.typing import ArrayLike

from trustdoctor.arrays import Array
from trustdoctor.predictions import Predictions


class SupportsDetach(Protocol):
    """A tensor of torch, without importing torch."""

    def detach(self) -> Any:
        """Return the tensor without its gradient."""


Options = ParamSpec("Options")
TensorT = TypeVar("TensorT", bound=SupportsDetach)


class RowFormula(Protocol[Options]):
    """A function of logits (n, C) to doubts (n,) of the same kind."""

    __name__: str

    @overload
    def __call__(
        self, logits: TensorT, *args: Options.args, **options: Options.kwargs
    ) -> TensorT: ...

    @overload
    def __call__(
        self,
        logits: Predictions | ArrayLike,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> Array: ...


def row_formula(
    function: Callable[Concatenate[Any, Options], Any],
) -> RowFormula[Options]:
    """Return the function itself, typed by what it is called with."""
    return function  # type: ignore[return-value]
