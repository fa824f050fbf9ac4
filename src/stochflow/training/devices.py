"""A batch shared between devices: each takes the gradient of its own rows, and all go on with the mean.

The weights are the same everywhere and the data is, so there is nothing to gather. Two devices of the CPU (`jax.config.
update("jax_num_cpu_devices", 2)` before anything is computed) use two cores better than XLA does one small product at a
time.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PRNGKeyArray, PyTree

from .packing import pack, unpack

AXIS = "devices"
# Settings that count what an update draws: all of them are shared between the devices.
SHARED = ("batch_size", "consistency_batch", "transitions", "skip_starts")
# Of what is being traced: between how many devices a batch is shared.
_number = contextvars.ContextVar("_number", default=1)


def usable_devices(*sizes: int | None) -> int:
    """The most devices of this process between which batches of all these sizes can be shared evenly."""
    given = [size for size in sizes if size is not None]
    fits = lambda number: all(size % number == 0 for size in given)
    return next(number for number in range(jax.local_device_count(), 0, -1) if fits(number))


def on_devices(fn: Callable, number: int) -> Callable:
    """`fn` compiled to run on so many devices at once, with the same arguments and the same results on each."""
    if number == 1:
        return jax.jit(fn)

    @functools.wraps(fn)
    def on_each(*args: Any) -> Any:
        with _shared_between(number):
            return fn(*args)

    same = PartitionSpec()
    return jax.jit(jax.shard_map(on_each, mesh=_mesh(number), in_specs=same, out_specs=same, check_vma=False))


def everywhere(tree: PyTree, number: int) -> PyTree:
    """Arrays copied to so many devices, once and not at every call."""
    return tree if number == 1 else jax.device_put(tree, NamedSharding(_mesh(number), PartitionSpec()))


def _mesh(number: int) -> Mesh:
    return Mesh(np.array(jax.local_devices()[:number]), (AXIS,))


@contextlib.contextmanager
def _shared_between(number: int) -> Iterator[None]:
    token = _number.set(number)
    try:
        yield
    finally:
        _number.reset(token)


def my_share(size: int) -> int:
    """How many of so many rows are this device's."""
    return size // _number.get()


def my_rows(batch: PyTree) -> PyTree:
    """Those rows of a batch that are this device's."""
    number = _number.get()
    if number == 1:
        return batch
    me = jax.lax.axis_index(AXIS)
    pick = lambda leaf: jax.lax.dynamic_slice_in_dim(
        leaf, me * (leaf.shape[0] // number), leaf.shape[0] // number
    )
    return jax.tree.map(pick, batch)


def my_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """A key of this device's own; the key itself if there is but one."""
    return key if _number.get() == 1 else jr.fold_in(key, jax.lax.axis_index(AXIS))


def mean_of_all(tree: PyTree) -> PyTree:
    """The mean over devices, in one exchange."""
    if _number.get() == 1:
        return tree
    return unpack(jax.lax.pmean(pack(tree), AXIS), tree)


def brought_home(tree: PyTree) -> PyTree:
    """Arrays that were on several devices as arrays of no device in particular."""
    home = lambda leaf: leaf if len(leaf.devices()) == 1 else jnp.asarray(np.asarray(leaf))
    return jax.tree.map(home, tree)
