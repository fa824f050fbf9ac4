"""Maximum likelihood of observed transitions."""

from jaxtyping import Array, Float, Scalar, ScalarLike

from ..laws import AbstractTransition


def negative_log_likelihood(
    law: AbstractTransition,
    x_s: Float[Array, " dim"],
    x_t: Float[Array, " dim"],
    s: ScalarLike,
    t: ScalarLike,
    u: Float[Array, " cond"] | None = None,
) -> Scalar:
    r"""$-\log p(x_t \mid x_s)$ of one observed transition."""
    return -law.log_prob(x_t, x_s, s, t, u)
