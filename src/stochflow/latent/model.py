"""`LatentFlow`: a hidden process with a learnt transition law, seen through an emission."""

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..flows import BridgeFlow, StochasticFlow
from ..laws import AbstractBridge, AbstractGaussianTransition, AbstractTransition, LinearBridge
from .emissions import AbstractEmission, GaussianEmission
from .initial import InitialLaw
from .posteriors import AbstractPosterior, FilteringPosterior, SmoothingPosterior, WindowPosterior

POSTERIORS = {"filter": FilteringPosterior, "smooth": SmoothingPosterior, "window": WindowPosterior}


class LatentFlow(eqx.Module):
    r"""A state-space model in continuous time whose transition law is a flow (section 4 of the paper).

    $$p(x, o) = p(x_{t_0}) \prod_i p(x_{t_i} \mid x_{t_{i-1}})\, p(o_{t_i} \mid x_{t_i}), \qquad q(x \mid o)$$

    - `transition`: how the hidden state moves; any gap in one step.
    - `emission`: what is observed of it.
    - `posterior`: from observations to states.
    - `bridge`: for the consistency loss and for states between observations; may be `None`, and need not be given for
        a transition with Gaussian steps, whose bridge is known.
    - `initial`: the law of the first state.

    Every part may be any that has its interface; [`latent_flow`][stochflow.latent.latent_flow] builds a usual set.
    """

    transition: AbstractTransition
    emission: AbstractEmission
    posterior: AbstractPosterior
    bridge: AbstractBridge | None
    initial: InitialLaw

    def __init__(
        self,
        transition: AbstractTransition,
        emission: AbstractEmission,
        posterior: AbstractPosterior,
        bridge: AbstractBridge | None = None,
    ):
        parts = {"emission": emission, "posterior": posterior} | ({"bridge": bridge} if bridge else {})
        for name, part in parts.items():
            if part.dim != transition.dim:
                raise ValueError(
                    f"`{name}` has states of size {part.dim} where `transition` has {transition.dim}."
                )
        if posterior.channels not in (None, emission.channels):
            raise ValueError(
                f"`posterior` reads {posterior.channels} channels where `emission` has {emission.channels}."
            )
        self.transition = transition
        self.emission = emission
        self.posterior = posterior
        self.bridge = bridge
        self.initial = InitialLaw(transition.dim)

    @property
    def dim(self) -> int:
        return self.transition.dim

    @property
    def channels(self) -> int:
        return self.emission.channels

    @property
    def between(self) -> AbstractBridge | None:
        """The law of states between two others: `bridge` or, where there is none and steps are Gaussian, the exact
        one of the transition."""
        if self.bridge is None and isinstance(self.transition, AbstractGaussianTransition):
            return LinearBridge(self.transition)
        return self.bridge

    @property
    def reader(self) -> AbstractPosterior:
        """The posterior, with the parts of this model at hand if it computes with them."""
        return self.posterior.of(self.transition, self.emission, self.initial)


def latent_flow(
    channels: int,
    dim: int,
    *,
    cond_dim: int = 0,
    posterior: str = "filter",
    autonomous: bool = True,
    mask_input: bool = True,
    width: int = 64,
    layers: int = 4,
    hidden: int = 32,
    std: str = "channel",
    initial_std: float = 0.2,
    clock: str = "saturating",
    coupling: str = "affine",
    octaves: int = 0,
    key: PRNGKeyArray,
) -> LatentFlow:
    """A latent flow with the usual parts.

    **Arguments:**

    - `channels`: how many are observed; `dim`: the size of the hidden state; `cond_dim`: that of covariates.
    - `posterior`: `"filter"` (a GRU over the past), `"smooth"` (past and future, Markov) or `"window"`.
    - `mask_input`: tell the posterior which channels were observed; needed when some are missing.
    - `width`, `layers`: of the transition's networks, and how many couplings it has; `hidden`: of the posterior's
        networks.
    - `std`, `initial_std`: of the Gaussian emission, in standard deviations of the data.
    - `clock`, `coupling`, `octaves`, `autonomous`: of the transition.
    """
    if posterior not in POSTERIORS:
        raise ValueError(f"`posterior` must be one of {', '.join(POSTERIORS)}; got {posterior!r}.")
    for name, size in {"channels": channels, "dim": dim, "width": width, "hidden": hidden}.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1; got {size}.")
    flow_key, bridge_key, emission_key, posterior_key = jr.split(key, 4)
    sizes = {"width": hidden, "mask_input": mask_input}
    if posterior != "window":
        sizes |= {"hidden": hidden, "autonomous": autonomous}
    return LatentFlow(
        StochasticFlow(
            dim,
            cond_dim=cond_dim,
            autonomous=autonomous,
            width=width,
            layers=layers,
            clock=clock,
            coupling=coupling,
            octaves=octaves,
            key=flow_key,
        ),
        GaussianEmission(dim, channels, std=std, initial_std=initial_std, key=emission_key),
        POSTERIORS[posterior](channels, dim, **sizes, key=posterior_key),
        BridgeFlow(
            dim, cond_dim=cond_dim, autonomous=autonomous, width=min(width, 32), layers=layers, key=bridge_key
        ),
    )


def number_of_parameters(part: eqx.Module) -> int:
    """Trainable numbers in a part of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)))
