"""What an SDE is refused for, before anything is learnt: what it returns, noise that is none, and laws without a
density."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..sde import SDE, AbstractSolver
from .pool import advance
from .probe import SAME, first_line, rounded, shifts

# Of starts at which a function may be odd: those are lost, and counted.
MOST_ODD = 0.1
# Paths from each of a few starts, by which a law without a density is known.
STARTS, PATHS = 4, 512
# Of the size of a coordinate, and of the variance of any sum of them: below these single precision sees no noise. Paths
# of a coordinate without any end at one number, to the last digit.
LEAST_STD, LEAST_SHARE = float(np.finfo(np.float32).eps), 1e-9
# By which share the rounding of all steps may widen a coordinate.
MOST_ROUNDED = 0.01


def check_shapes(sde: SDE) -> None:
    """A `ValueError` if drift or diffusion raise, or do not return what `dim` and `noise` promise."""
    wanted = {
        "drift": (sde.dim,),
        "diffusion": (sde.dim,) if sde.noise == "diagonal" else (sde.dim, sde.noise_dim),
    }
    for name, shape in wanted.items():
        got = _returned(sde, name)
        if got.shape != shape:
            raise ValueError(
                f"`{name}` must return shape {shape} for `dim` {sde.dim} and {sde.noise} noise; got {got.shape}."
            )
        if not jnp.issubdtype(got.dtype, jnp.floating):
            raise ValueError(
                f"`{name}` must return real numbers of a floating type; got {got.dtype}: multiply integers by 1.0, and "
                "take the real part of what is complex."
            )


def _returned(sde: SDE, name: str) -> jax.ShapeDtypeStruct:
    """Shape and type of what a function of the SDE returns."""
    x, t = jax.ShapeDtypeStruct((sde.dim,), jnp.result_type(float)), jnp.zeros(())
    kinds = []

    def call(x):
        made = getattr(sde, name)(t, x, None)
        kinds.append(type(made).__name__)
        return made if isinstance(made, jax.Array | np.ndarray | np.number | int | float) else None

    try:
        found = jax.eval_shape(call, x)
    except Exception as error:  # whatever a function of the user's raises
        # Those that a function of other arguments raises, or one that is not written for tracers.
        usual = isinstance(error, TypeError | ValueError | IndexError | AttributeError)
        hint = "; write it with `jax.numpy`, as a function `f(t, x, u)` or, for `SDE.autonomous`, `f(x)`"
        raise ValueError(
            f"`{name}` failed at a state of shape {x.shape}: {first_line(error)}{hint if usual else ''}."
        ) from error
    if found is None:
        raise ValueError(f"`{name}` must return an array, as `jnp.stack` makes one; got {kinds[0]}.")
    return found


def check_noise(sde: SDE, states: Float[Array, "n dim"], times: Float[Array, " n"]) -> None:
    """A `ValueError` if there is no noise at any of these states, or if noise that was said to be additive is another
    at another of them. Values tell that, of a step in the diffusion as well, which has no derivative."""
    none, largest, differ = _noise(sde, states, times, shifts(states))
    if none:
        raise ValueError(
            "`diffusion` must not be zero everywhere; it is at all states that were probed, and without noise there is "
            "no density to learn."
        )
    # By rows, as coordinates have units of their own.
    worst = np.asarray(differ / (largest + jnp.finfo(largest.dtype).tiny))
    if sde.additive and worst.max() > SAME:
        raise ValueError(
            f"`additive` must not be True where the diffusion depends on the state; that of coordinate "
            f"{int(worst.argmax())} does: leave `additive=True` out."
        )


@eqx.filter_jit
def _noise(sde, states, times, turns):
    """Whether there is none and, for each row of the diffusion, its largest size and by how much it differs between
    states at one time."""
    rows = jax.vmap(lambda t, x: sde.diffusion(t, x, None).reshape(sde.dim, -1))
    here = rows(times, states)
    largest = lambda a: jnp.nanmax(jnp.abs(a), axis=(0, 2), initial=0.0)
    others = [rows(times, jnp.roll(states, by, axis=0)) for by in turns]
    differ = jnp.stack([largest(here - other) for other in others]).max(axis=0)
    return (here == 0).all(), largest(here), differ


def check_finite(sde: SDE, states: Float[Array, "n dim"], times: Float[Array, " n"]) -> None:
    """A `ValueError` if drift or diffusion is not finite at some of these states, which are starts."""
    for name in ("drift", "diffusion"):
        function = getattr(sde, name)
        found = eqx.filter_jit(jax.vmap(lambda t, x, function=function: function(t, x, None)))(times, states)
        bad = ~np.isfinite(np.asarray(found)).reshape(len(states), -1).all(axis=1)
        if bad.mean() > MOST_ODD:
            where = ", ".join(f"{number:.4g}" for number in np.asarray(states)[bad.argmax()])
            raise ValueError(
                f"`{name}` is not finite at {bad.sum()} of {len(states)} starts that were tried, such as ({where}): "
                "mend it there, or choose other `starts`."
            )


def check_density(
    sde: SDE,
    scheme: AbstractSolver,
    x0: Float[Array, "n dim"],
    horizon: float,
    steps: int,
    *,
    key: PRNGKeyArray,
) -> None:
    """A `ValueError` if the law at the horizon has no density: a coordinate, or a sum of several, that has no noise
    whatever the start. Noise may come by way of other coordinates. The solver and its steps are those that the law is
    learnt with: of a stiff SDE others blow up, and what has blown up looks as if its coordinates were one."""
    odd = None
    number, h = max(PATHS, 8 * sde.dim), jnp.asarray(horizon / steps, x0.dtype)
    for i in range(min(STARTS, len(x0))):
        ends = _ends(sde, scheme, x0[i], number, h, jnp.asarray(steps), jr.fold_in(key, i))
        ends = np.asarray(ends, np.float64)
        ends = ends[np.isfinite(ends).all(axis=1)]
        odd = _without_noise(ends)
        if odd is None:
            _require_digits(ends, horizon, steps, x0.dtype)
            return
    if odd is not None:
        raise ValueError(
            f"{odd}, so that there is no density to learn: leave out what the other coordinates determine, or give it "
            "noise of its own."
        )


def _require_digits(ends, horizon, steps, dtype):
    """A `ValueError` if the steps are so short beside the state that its last digit is most of what they do."""
    if len(ends) < 2:
        return
    share = rounded(ends, steps, dtype)
    worst = int(share.argmax())
    if share[worst] > MOST_ROUNDED:
        raise ValueError(
            f"coordinate {worst} is about {ends[0, worst]:.3g} and spreads by {ends[:, worst].std():.2g}, and steps of "
            f"{horizon / steps:.2g} get lost in the last digit of {np.dtype(dtype).name}: measure it from another "
            "origin, choose a longer `dt`, or switch on `jax_enable_x64`."
        )


@eqx.filter_jit
def _ends(sde, scheme, x0, number, h, steps, key):
    return advance(sde, scheme, jnp.tile(x0, (number, 1)), jnp.zeros(()), h, steps, key=key)


def _without_noise(ends: Float[np.ndarray, "n dim"]) -> str | None:
    """Which part of a state is the same at the ends of all paths, if one is."""
    if len(ends) <= 2 * ends.shape[1]:  # what explodes is told of elsewhere
        return None
    std, size = ends.std(axis=0), np.abs(ends).max(axis=0)
    if (still := std <= LEAST_STD * size).any():
        return f"coordinate {int(still.argmax())} has no noise that single precision can tell"
    values, vectors = np.linalg.eigh(np.corrcoef(ends.T).reshape(len(std), -1))
    if values[0] > LEAST_SHARE * len(std):
        return None
    named = ", ".join(map(str, np.flatnonzero(np.abs(vectors[:, 0]) > 0.1)))
    return f"coordinates {named} determine each other"
