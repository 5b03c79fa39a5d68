"""The one logistic regression."""

import numpy as np

from trustdoctor.arrays import Array


def fit_logistic(x: Array, y: Array, *, penalty: float = 1.0) -> tuple[Array, float]:
    """Return weights and bias of an L2-penalised fit, by damped Newton steps.

    `penalty` weighs the squared weights; the bias is free. Columns should be of like
    scale.

    Examples
    --------
    >>> weights, bias = fit_logistic(np.array([[-1.0], [1.0]]), np.array([False, True]))
    >>> bool(weights[0] > 0), bool(abs(bias) < 1e-9)
    (True, True)
    """
    z = np.column_stack([x, np.ones(len(x))])
    ridge = np.full(z.shape[1], penalty)
    ridge[-1] = 0.0
    w = np.zeros(z.shape[1])
    for _ in range(100):
        p = 0.5 * (1 + np.tanh(z @ w / 2))  # the sigmoid, without overflow
        gradient = z.T @ (p - y) + ridge * w
        hessian = (z * (p * (1 - p))[:, None]).T @ z + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        w = w - step * min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-10:
            break
    return w[:-1], float(w[-1])


def standardise(x: Array) -> tuple[Array, Array, Array]:
    """Return columns of mean 0 and deviation 1, the means, and the deviations."""
    means, spreads = x.mean(0), x.std(0)
    spreads = np.where(spreads > 0, spreads, 1.0)
    return (x - means) / spreads, means, spreads
