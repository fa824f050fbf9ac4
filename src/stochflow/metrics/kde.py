r"""KL divergence by kernel density estimates, with the protocol of the paper's Lorenz table.

The paper: "Gaussian kernels; bandwidth by 3-fold cross-validation of the log-likelihood of unseen data; ten
independent folds, values beyond the 5th and 95th percentiles excluded; mean and standard deviation of the
rest". It does not say what a fold is. `kde_kl` takes *independent* at its word: every fold has its own true
and its own model samples, so the spread of the fold values is an honest error. `kde_kl_kfold` is the other
reading, for a data set that cannot be drawn again: the folds of cross-validation, which share most samples.

The estimate is blunt, whichever the reading: both densities are smoothed, and where the truth is a thin curve
the floor itself is off zero by tenths of a nat. Print `kde_floor` beside every value, with as many samples.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar, ScalarLike

from .chunks import map_in_chunks
from .estimates import AnyArray

# Bandwidths in units of the sample's scale (root mean variance over dimensions). The coarse grid spans a thin
# curve (10⁻³) to broader than a Gaussian ever needs (10^½); the fine one the gap on both sides of its best
# point, in steps of 15 %.
COARSE_GRID = 10.0 ** np.linspace(-3.0, 0.5, 15)
FINE_GRID = 10.0 ** np.linspace(-0.25, 0.25, 9)
SPLITS = 3  # of the cross-validation of a bandwidth
ROWS_AT_A_TIME = 64  # of a block of pairwise distances: small enough for the cache
HELD_OUT = 0.25  # of a fold's true points: the density estimates need most of them


class KLEstimate(NamedTuple):
    """Mean and standard deviation of the fold values that were kept, and all fold values, in nats."""

    mean: float
    std: float
    values: Float[np.ndarray, " folds"]


@eqx.filter_jit
def kde_log_density(
    points: Float[AnyArray, "points dim"], centres: Float[AnyArray, "centres dim"], bandwidth: ScalarLike
) -> Float[Array, " points"]:
    r"""$\log \frac1n \sum_i \mathcal N(x;\, c_i, h^2 I)$ at each point."""
    points, centres = jnp.asarray(points), jnp.asarray(centres)
    return _log_densities(points, centres, jnp.asarray(bandwidth, points.dtype)[None])[:, 0]


def cv_bandwidth(sample: Float[AnyArray, "n dim"], *, key: PRNGKeyArray) -> Scalar:
    """The bandwidth with the best held-out log-likelihood in 3-fold cross-validation; `key` shuffles.

    The grid is log-spaced and relative to the sample's scale: 15 points from 10⁻³ to 10^½, then nine more
    around the best. A sample with repeated points has no best bandwidth: it ends at the lower edge.
    """
    return _cv_bandwidth(jr.permutation(key, jnp.asarray(sample)))


def kde_kl(
    truth: Float[AnyArray, "n dim"],
    model: Float[AnyArray, "m dim"],
    *,
    folds: int = 10,
    shared: bool = False,
    key: PRNGKeyArray,
) -> KLEstimate:
    r"""$\mathrm{KL}(p_\text{truth} \,\|\, p_\text{model})$ from samples, over independent folds.

    Both samples are shuffled and cut into `folds` disjoint parts. In each, a quarter of the true points is
    held out; one density estimate is fitted to the rest and one to *as many* model points, each with its own
    bandwidth; the fold's value is the mean of $\log \hat p_\text{truth} - \log \hat p_\text{model}$ over the
    held-out points. An estimate thus sees less than a tenth of the points: give 10,000 and not 1,000.

    With `shared`, both estimates have the bandwidth of the true sample (the paper speaks of "the bandwidth"). One per
    cent of stray model points makes the model's own bandwidth half as large again, and so costs tenths of a nat; with
    a shared one it costs a hundredth.
    """
    found = kde_kls(truth, [model], folds=folds, key=key)[0]
    return found.shared if shared else found.own


class KLReadings(NamedTuple):
    """The estimate with a bandwidth of its own for either density, and with that of the true sample for both."""

    own: KLEstimate
    shared: KLEstimate


def kde_kls(
    truth: Float[AnyArray, "n dim"],
    models: Sequence[Float[AnyArray, "m dim"]],
    *,
    folds: int = 10,
    key: PRNGKeyArray,
) -> list[KLReadings]:
    """[`kde_kl`][stochflow.metrics.kde_kl] of several models against one truth, in both readings: the density of the
    truth is fitted once. All model samples must have one size."""
    checked = [_checked(truth, model) for model in models]
    true_sample, samples = checked[0][0], jnp.stack([sample for _, sample in checked])
    part = len(true_sample) // folds
    held_out = round(HELD_OUT * part)
    fitted = min(part - held_out, samples.shape[1] // folds)
    _require_points(fitted, held_out)
    truth_key, model_key = jr.split(key)
    cut = lambda sample, size: sample[: folds * size].reshape(folds, size, -1)
    true_folds = cut(jr.permutation(truth_key, true_sample), fitted + held_out)
    order = jr.permutation(model_key, samples.shape[1])
    model_folds = jnp.stack([cut(sample[order], fitted) for sample in samples], axis=1)
    values = _fold_values(true_folds[:, held_out:], model_folds, true_folds[:, :held_out])
    values = np.asarray(values, np.float64)
    return [KLReadings(*(_trimmed(values[:, i, j]) for j in range(2))) for i in range(len(models))]


def pooled_kl(estimates: Sequence[KLEstimate]) -> KLEstimate:
    """Several runs of the protocol as one: the mean of their means, and the spread of the folds of one of them."""
    means, spreads = np.array([e.mean for e in estimates]), np.array([e.std for e in estimates])
    values = np.concatenate([e.values for e in estimates])
    return KLEstimate(float(means.mean()), float(np.sqrt(np.mean(spreads**2))), values)


def kde_kl_kfold(
    truth: Float[AnyArray, "n dim"],
    model: Float[AnyArray, "m dim"],
    *,
    folds: int = 10,
    key: PRNGKeyArray,
) -> KLEstimate:
    r"""The same estimate with the folds of cross-validation: each is held out once, the others are fitted.

    It sees nine tenths of a sample instead of one and so resolves more of a fixed data set, for 140 times
    as many pairs of points. But the folds share their fits: `std` leaves out the error they have in common.
    """
    truth, model = _checked(truth, model)
    part = min(len(truth), len(model)) // folds
    _require_points(part * (folds - 1), part)
    truth_key, model_key = jr.split(key)
    truth, model = (
        jr.permutation(truth_key, truth)[: folds * part],
        jr.permutation(model_key, model)[: folds * part],
    )
    rolled = lambda sample: jnp.stack([jnp.roll(sample, -k * part, axis=0) for k in range(folds)])
    true_folds, model_folds = rolled(truth), rolled(model)
    values = _fold_values(true_folds[:, part:], model_folds[:, None, part:], true_folds[:, :part])
    return _trimmed(np.asarray(values[:, 0, 0], np.float64))


def kde_floor(
    truth_a: Float[AnyArray, "n dim"],
    truth_b: Float[AnyArray, "m dim"],
    *,
    folds: int = 10,
    key: PRNGKeyArray,
) -> KLEstimate:
    """What a perfect model would score: `kde_kl` of one true sample against another, independent one."""
    return kde_kl(truth_a, truth_b, folds=folds, key=key)


@eqx.filter_jit
def _fold_values(
    truth: Float[Array, "folds n dim"],
    models: Float[Array, "folds models n dim"],
    points: Float[Array, "folds k dim"],
) -> Float[Array, "folds models 2"]:
    """Of each fold and each model: with bandwidths of their own, and with that of the truth."""

    def value(fold):
        truth, models, points = fold
        bandwidth = _cv_bandwidth(truth)
        log_truth = _log_densities(points, truth, bandwidth[None]).mean()

        def against(model):
            bandwidths = jnp.stack([_cv_bandwidth(model), bandwidth])
            return log_truth - _log_densities(points, model, bandwidths).mean(axis=0)

        return jax.lax.map(against, models)

    return jax.lax.map(value, (truth, models, points))


@eqx.filter_jit
def _cv_bandwidth(sample: Float[Array, "n dim"]) -> Scalar:
    parts = sample[: len(sample) // SPLITS * SPLITS].reshape(SPLITS, -1, sample.shape[1])

    others = jnp.stack([jnp.concatenate([parts[k - 1], parts[k - 2]]) for k in range(SPLITS)])

    def score(grid):
        held_out = lambda split: _log_densities(split[0], split[1], grid).mean(axis=0)
        return jax.lax.map(held_out, (parts, others)).mean(axis=0)

    coarse = jnp.sqrt(sample.var(axis=0).mean()) * jnp.asarray(COARSE_GRID, sample.dtype)
    fine = coarse[jnp.argmax(score(coarse))] * jnp.asarray(FINE_GRID, sample.dtype)
    return fine[jnp.argmax(score(fine))]


def _log_densities(
    points: Float[Array, "points dim"],
    centres: Float[Array, "centres dim"],
    bandwidths: Float[Array, " grid"],
) -> Float[Array, "points grid"]:
    """Distances once, then one pass of exponentials a bandwidth; relative to the nearest: no underflow."""
    n, dim = centres.shape

    def at(point):
        squared = jnp.square(point[None] - centres).sum(axis=1)
        nearest = squared.min()
        over_nearest = lambda h: jnp.log(jnp.exp((nearest - squared) / (2 * h**2)).sum())
        return jax.lax.map(over_nearest, bandwidths) - nearest / (2 * bandwidths**2)

    log_normaliser = jnp.log(n) + 0.5 * dim * jnp.log(2 * jnp.pi * bandwidths**2)
    return map_in_chunks(at, points, ROWS_AT_A_TIME) - log_normaliser[None]


def _checked(
    truth: Float[AnyArray, "n dim"], model: Float[AnyArray, "m dim"]
) -> tuple[Float[Array, "n dim"], Float[Array, "m dim"]]:
    """Both samples in units of the true one, which cancels in the difference and makes float32 safe."""
    truth, model = np.asarray(truth, np.float64), np.asarray(model, np.float64)
    if truth.ndim != 2 or model.ndim != 2 or truth.shape[1] != model.shape[1]:
        raise ValueError(
            f"`truth` and `model` must be points of one space, (n, dim) and (m, dim); got {truth.shape} and "
            f"{model.shape}."
        )
    for name, sample in {"truth": truth, "model": model}.items():
        if not np.isfinite(sample).all():
            raise ValueError(f"`{name}` must be finite; got {(~np.isfinite(sample)).any(1).sum()} bad rows.")
        if not np.ptp(sample, axis=0).any():
            raise ValueError(f"`{name}` must have a density; all of its {len(sample)} points are the same.")
    centre, scale = truth.mean(axis=0), np.sqrt(truth.var(axis=0).mean())
    return jnp.asarray((truth - centre) / scale, float), jnp.asarray((model - centre) / scale, float)


def _require_points(fitted: int, held_out: int) -> None:
    if fitted < 2 * SPLITS or held_out < 1:
        raise ValueError(
            f"a fold must fit at least {2 * SPLITS} points and hold one out; got {fitted} and {held_out}: "
            "give more samples or fewer `folds`."
        )


def _trimmed(values: Float[np.ndarray, " folds"]) -> KLEstimate:
    low, high = np.percentile(values, [5, 95])
    kept = values[(values >= low) & (values <= high)]
    return KLEstimate(float(kept.mean()), float(kept.std()), values)
