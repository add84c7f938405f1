"""Entropic optimal transport between two sets of sentences, differentiable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FIRST_EXTENT = 10.0
"""Annealing starts with a lambda at which the largest cost times lambda is at most this."""
ROUNDS = 10
"""Rounds for each lambda while annealing, and between two checks of the marginals."""


def transport(
    costs: Tensor,
    rows: Tensor,
    columns: Tensor,
    regularization: float = 20.0,
    tolerance: float = 1e-3,
    max_rounds: int = 200,
) -> Tensor:
    """The regularized cost (pairs,) of moving the masses of the rows to the columns.

    ``costs`` is (pairs, rows, columns); ``rows`` (pairs, rows) and ``columns`` (pairs, columns) are
    logarithms of masses that sum to 1, minus infinity for padding. The value is

        min over plans P with these marginals of  <P, C> + KL(P | rows x columns) / lambda

    (Cuturi, 2013; lambda is ``regularization``), the loss that geomloss computes for ASPIRE in training with
    the blur 1 / lambda. It is computed as its dual at the optimal potentials f and g,

        <rows, f> + <columns, g> - (sum of P - 1) / lambda,  P_ij = r_i c_j exp(lambda (f_i + g_j - C_ij)),

    these held constant: by the envelope theorem (Peyré and Cuturi, 2019, section 9.1) the gradient with
    respect to the costs is then the plan P, and with respect to the masses the potentials. Iteration stops
    when the error of the plan's marginals (summed over the rows) is at most ``tolerance``, or after
    ``max_rounds``. Computed in double precision; the result has the type of the costs.

    >>> costs, halves = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), torch.tensor([[0.5, 0.5]]).log()
    >>> cost = transport(costs, halves, halves, math.log(4))  # of the plan [[0.4, 0.1], [0.1, 0.4]]
    >>> plan_cost, divergence = 0.2, 0.8 * math.log(0.4 / 0.25) + 0.2 * math.log(0.1 / 0.25)
    >>> round(cost.item(), 4), round(plan_cost + divergence / math.log(4), 4)
    (0.339, 0.339)
    """
    exact = costs.double()
    log_rows, log_columns = rows.double(), columns.double()
    f, g = potentials(
        exact.detach(), log_rows.detach(), log_columns.detach(), regularization, tolerance, max_rounds
    )
    exponents = _log_plan(exact, log_rows, log_columns, f, g, regularization)
    excess = exponents.exp().sum((1, 2)) - 1
    value = (log_rows.exp() * f).sum(1) + (log_columns.exp() * g).sum(1) - excess / regularization
    return value.to(costs.dtype)


@torch.no_grad()
def potentials(
    costs: Tensor,
    rows: Tensor,
    columns: Tensor,
    regularization: float = 20.0,
    tolerance: float = 1e-3,
    max_rounds: int = 200,
) -> tuple[Tensor, Tensor]:
    """Potentials f (pairs, rows) and g (pairs, columns) by Sinkhorn iteration on logarithms.

    Lambda is annealed: it doubles from a value at which all costs are nearly equal to ``regularization``, so
    that large costs need no more rounds than small ones. Parameters are those of `transport`.

    >>> costs, halves = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), torch.tensor([[0.5, 0.5]]).log()
    >>> f, g = potentials(costs, halves, halves, math.log(4))
    >>> (math.log(4) * (f[:, :, None] + g[:, None] - costs)).exp() / 4  # the plan
    tensor([[[0.4000, 0.1000],
             [0.1000, 0.4000]]])
    """
    extent = regularization * float(costs.max()) / FIRST_EXTENT
    stages = max(0, math.ceil(math.log2(extent))) if extent > 0 else 0
    f, g = torch.zeros_like(rows), torch.zeros_like(columns)
    for stage in range(stages, -1, -1):
        strength = regularization / 2**stage
        to_rows = columns.unsqueeze(1) - strength * costs
        to_columns = rows.unsqueeze(2) - strength * costs
        u, v = strength * f, strength * g
        for number in range(1, (max_rounds if stage == 0 else ROUNDS) + 1):
            before, u = u, -torch.logsumexp(to_rows + v.unsqueeze(1), 2)
            v = -torch.logsumexp(to_columns + u.unsqueeze(2), 1)
            if stage == 0 and number % ROUNDS == 0:
                # After a round the columns' masses are exact; u then changes by the error of the rows'.
                error = rows.exp() * torch.expm1(before - u).abs()
                if float(error.sum(1).max()) <= tolerance:
                    break
        f, g = u / strength, v / strength
    return f, g


def _log_plan(
    costs: Tensor, rows: Tensor, columns: Tensor, f: Tensor, g: Tensor, regularization: float
) -> Tensor:
    """Logarithms of a plan; minus infinity, without gradient, for padding."""
    real = rows.isfinite().unsqueeze(2) & columns.isfinite().unsqueeze(1)
    masses = torch.where(real, rows.unsqueeze(2) + columns.unsqueeze(1), 0.0)
    gains = f.unsqueeze(2) + g.unsqueeze(1) - costs
    return torch.where(real, masses + regularization * gains, -math.inf)
