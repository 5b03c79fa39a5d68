"""What a model said of rows and of views of them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.predictions.logits import Predictions


@dataclass(frozen=True, eq=False)
class Opinions:
    """What the model said of rows and of all their views.

    Attributes
    ----------
    predictions : Predictions
        Of the clean input; these are the predictions that are judged.
    doubts : array (n, passes)
        The doubt after the first pass, after the second, ...
    answers : array (n, passes)
        The class that each view by itself would get.
    confidence : array (n, passes)
        The largest probability of each view by itself.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> two = np.array([[-2.0, -1.0]])
    >>> Opinions(p, two, np.zeros((1, 2), int), np.array([[0.88, 0.73]])).scores
    array([-1.])
    """

    predictions: Predictions
    doubts: Array = field(repr=False)
    answers: NDArray[np.int64] = field(repr=False)
    confidence: Array = field(repr=False)

    @property
    def scores(self) -> Array:
        """The doubt after all passes."""
        return self.doubts[:, -1]
