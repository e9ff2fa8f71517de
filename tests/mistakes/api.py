"""Of the Python API, in a training loop of one's own."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh

from olsgd_jax import (
    diloco,
    distribute,
    easgd,
    init_state,
    int8,
    local_sgd,
    low_rank,
    make_round,
    make_worker_round,
    model_of,
    on_workers,
    overlap_local_sgd,
    payload_bytes,
    plain_loss,
    random_mask,
    slowmo,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.theory import (
    round_radii,
    stationary_vector,
    theorem_bound,
    virtual_model,
)
from olsgd_jax.training import (
    Config,
    Preemption,
    RollbackPolicy,
    Task,
    evaluate,
    make_batches,
    make_partition,
    train,
)

SGD, OVERLAP = optax.sgd(0.1), overlap_local_sgd(0.5)
PARAMS = {"w": jnp.zeros(3)}
LOSS = plain_loss(lambda params, batch: jnp.sum(params["w"] * batch))


def state(params=PARAMS, optimizer=SGD, strategy=OVERLAP, num_workers=2, **options):
    return init_state(params, optimizer, strategy, num_workers=num_workers, **options)


def one_round(own=None, batches=None, present=None, strategy=OVERLAP, **options):
    batches = jnp.zeros((2, 1, 3)) if batches is None else batches
    run = make_round(LOSS, SGD, strategy, sync_period=1, **options)
    return run(state() if own is None else own, batches, present=present)


def update(tx, grads=PARAMS, own=None, params=PARAMS):
    return tx.update(grads, tx.init(PARAMS) if own is None else own, params)


def mean_in_a_while_loop(x):
    return lax.while_loop(lambda y: jnp.all(y < 1), worker_mean, x)


def preempted(tmp):
    with Preemption() as asked:
        signal.raise_signal(signal.SIGTERM)
        list(train(Config(num_rounds=2, width=4), preempted=asked))


def bound(num_steps):
    numbers = dict.fromkeys(("smoothness", "initial_gap"), 1.0)
    numbers |= dict.fromkeys(("noise", "heterogeneity"), 1.0)
    return theorem_bound(
        num_workers=4, sync_period=2, pullback=0.5, num_steps=num_steps, **numbers
    )


def radii(strategy):
    return round_radii(strategy, SGD, sync_period=1, curvature=1.0)


def forgetful():
    """A strategy that keeps each worker's last model without saying so."""

    def mix(start, end, mean, state):
        return mean, state._replace(anchor=end)

    return easgd(0.9, num_workers=2)._replace(name="forgetful", mix=mix)


def loss_round(loss, optimizer=SGD, strategy=OVERLAP, params=PARAMS, sync_period=1):
    run = make_round(loss, optimizer, strategy, sync_period=sync_period)
    own = init_state(params, optimizer, strategy, num_workers=2)
    return run(own, jnp.zeros((2, sync_period, 3)))


def plain(of_both):
    return lambda tmp: loss_round(plain_loss(of_both))


def in_bfloat16():
    adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.1)
    return state({"w": jnp.zeros(3, jnp.bfloat16)}, adam)


def explicit_mesh():
    kinds = (jax.sharding.AxisType.Explicit,)
    return jax.make_mesh((2,), ("workers",), axis_types=kinds)


DEVICES = jax.devices()[:2]
SAM = optax.contrib.sam(SGD, SGD)
LOOKAHEAD = optax.lookahead(SGD, sync_period=5, slow_step_size=0.5)
KINDS = {
    "`init_state(params, optax.sgd, ...)`": lambda tmp: state(optimizer=optax.sgd),
    "`make_round(loss, None, ...)`": lambda tmp: make_round(
        LOSS, None, OVERLAP, sync_period=1
    ),
    "a class instead of an optimizer": lambda tmp: state(optimizer=optax.MultiSteps),
    "`init_state(..., overlap_local_sgd)`, without calling the function": lambda tmp: (
        state(strategy=overlap_local_sgd)
    ),
    '`make_round(..., "local_sgd", ...)`': lambda tmp: make_round(
        LOSS, SGD, "local_sgd", sync_period=1
    ),
    "a list of devices instead of a mesh": lambda tmp: state(mesh=DEVICES),
    "a mesh without an axis `workers`": lambda tmp: state(
        mesh=Mesh(np.array(DEVICES), ("data",))
    ),
    "`jax.make_mesh` with explicit axes": lambda tmp: state(mesh=explicit_mesh()),
    "a loss of params and batch, without `plain_loss`": lambda tmp: make_worker_round(
        lambda params, batch: 0.0, SGD, OVERLAP
    ),
    "`None` instead of a loss": lambda tmp: make_worker_round(None, SGD, OVERLAP),
    "a loss that returns only its value": lambda tmp: loss_round(
        lambda params, model_state, batch, key: jnp.sum(params["w"] * batch)
    ),
    "a loss that also returns metrics": plain(
        lambda params, batch: (jnp.sum(params["w"] * batch), {"accuracy": 1.0})
    ),
    "a loss that returns one value per example": plain(
        lambda params, batch: params["w"] * batch
    ),
    "a loss that returns an integer": plain(lambda params, batch: jnp.array(1)),
    "a loss that adds an entry to the model state": lambda tmp: loss_round(
        lambda params, model_state, batch, key: (
            jnp.sum(params["w"] * batch),
            {"count": jnp.zeros(3)},
        )
    ),
    "`optax.lookahead` with plain params": lambda tmp: state(optimizer=LOOKAHEAD),
    "`optax.contrib.sam` with an odd sync period": lambda tmp: loss_round(
        LOSS, optimizer=SAM, sync_period=3
    ),
    "`inject_hyperparams(adam)` with bfloat16 params": lambda tmp: in_bfloat16(),
}

TX = distribute(SGD, OVERLAP, sync_period=2)
MISTAKES = KINDS | {
    "`overlap_local_sgd(2.0)`": lambda tmp: overlap_local_sgd(2.0),
    '`overlap_local_sgd("0.5")`': lambda tmp: overlap_local_sgd("0.5"),
    "`slowmo(0.5, step_size=nan)`": lambda tmp: slowmo(0.5, step_size=float("nan")),
    "`diloco(0.7)`": lambda tmp: diloco(0.7),
    "`slowmo(0.5, learning_rate=0.1)`": lambda tmp: slowmo(0.5, learning_rate=0.1),
    "`easgd(1.5, num_workers=4)`": lambda tmp: easgd(1.5, num_workers=4),
    "`low_rank(rank=0)`": lambda tmp: low_rank(rank=0),
    "`low_rank(rank=2.0)`": lambda tmp: low_rank(rank=2.0),
    "`low_rank(rank=2, seed=-1)`": lambda tmp: low_rank(rank=2, seed=-1),
    "`low_rank(error_feedback=2)`": lambda tmp: low_rank(error_feedback=2),
    '`int8(stochastic="no")`': lambda tmp: int8(stochastic="no"),
    "`random_mask(fraction=2)`": lambda tmp: random_mask(fraction=2),
    '`distribute(..., reduction="int8")`': lambda tmp: distribute(
        SGD, OVERLAP, 2, reduction="int8"
    ),
    "`init_state({}, ...)`": lambda tmp: state({}),
    "params that contain a list of floats": lambda tmp: state({"w": [0.0]}),
    "integer params": lambda tmp: state({"w": jnp.zeros(3, jnp.int32)}),
    "`init_state` without a mesh and without `num_workers`": lambda tmp: state(
        num_workers=None
    ),
    "3 workers on a mesh with 2 slots": lambda tmp: state(
        num_workers=3, mesh=worker_mesh(2)
    ),
    "a strategy built for 4 workers, used with 2": lambda tmp: state(
        strategy=easgd(0.5, num_workers=4)
    ),
    '`int8()` with `model_state_policy="averaged"`': lambda tmp: state(
        reduction=int8(), model_state_policy="averaged"
    ),
    "`init_state(..., seed=2**32)`": lambda tmp: state(seed=2**32),
    "`worker_mesh(10**6)`": lambda tmp: worker_mesh(10**6),
    "`worker_mesh(0)`": lambda tmp: worker_mesh(0),
    "`make_round(..., sync_period=2**31)`": lambda tmp: make_round(
        LOSS, SGD, OVERLAP, sync_period=2**31
    ),
    '`make_round(..., driver="host", stream=True)`': lambda tmp: one_round(
        driver="host", stream=True
    ),
    "`make_round(..., local_sgd(), stream=True)`": lambda tmp: one_round(
        strategy=local_sgd(), stream=True
    ),
    '`make_round(..., mapping="vmap", mesh=mesh)`': lambda tmp: one_round(
        mapping="vmap", mesh=worker_mesh(2)
    ),
    "a mesh that was not made by `worker_mesh`": lambda tmp: one_round(
        mesh=Mesh(np.array(jax.devices()[:2]), ("data",)), driver="fused"
    ),
    "`pmap` with workers of several devices": lambda tmp: on_workers(
        worker_mean, worker_mesh(2, data=2), "pmap"
    ),
    "batches without a worker axis": lambda tmp: one_round(batches=jnp.zeros((1, 3))),
    "an empty batch": lambda tmp: one_round(batches={}),
    "a batch that the devices of a worker cannot share evenly": lambda tmp: one_round(
        state(mesh=worker_mesh(2, data=2)), mesh=worker_mesh(2, data=2)
    ),
    "a state that was made with another optimizer": lambda tmp: one_round(
        state(optimizer=optax.adam(1))
    ),
    "a state that was made with another strategy": lambda tmp: one_round(
        state(strategy=local_sgd())
    ),
    "a state with a list instead of a tuple": lambda tmp: one_round(
        state()._replace(opt_state=list(state().opt_state))
    ),
    "`params` instead of the state": lambda tmp: one_round(PARAMS),
    "`present=[1, 0]`": lambda tmp: one_round(present=[1, 0]),
    "`present` with 3 bools for 2 workers": lambda tmp: one_round(
        present=jnp.array([True] * 3)
    ),
    "`tx.update(grads, state)`": lambda tmp: update(TX, params=None),
    "`tx.update` with the state of the wrapped optimizer": lambda tmp: update(
        TX, own=SGD.init(PARAMS)
    ),
    "`tx.update` with a state of another reduction": lambda tmp: update(
        TX, own=distribute(SGD, OVERLAP, 2, reduction=low_rank()).init(PARAMS)
    ),
    "`tx.update` with a state of another sync period": lambda tmp: update(
        TX, own=distribute(SGD, OVERLAP, 3).init(PARAMS)
    ),
    "`tx.update` outside `pmap` or another mapping": lambda tmp: update(TX),
    '`model_of(state, strategy, "best")`': lambda tmp: model_of(
        state(), OVERLAP, "best"
    ),
    '`model_of(..., "anchor")` with a strategy that has no anchor': lambda tmp: (
        model_of(state(strategy=local_sgd()), local_sgd(), "anchor")
    ),
    "`evaluate` with a task that has no `predict`": lambda tmp: evaluate(
        Task(None, LOSS), PARAMS, {}, np.zeros((1, 3)), np.zeros(1, np.int32)
    ),
    "`evaluate` with more labels than inputs": lambda tmp: evaluate(
        Task(None, LOSS, lambda *x: x), {}, {}, np.zeros((1, 3)), np.zeros(2, np.int32)
    ),
    "`payload_bytes` of a program with a mean in a while loop": lambda tmp: (
        payload_bytes(mean_in_a_while_loop, jnp.zeros((2, 3)), num_workers=2)
    ),
    "shards with indices of examples that do not exist": lambda tmp: make_batches(
        np.zeros(4), [np.array([5])], sync_period=1, batch_size=1, seed=0
    ),
    "shards that the slots of a mesh cannot share evenly": lambda tmp: make_batches(
        np.zeros(4),
        [np.arange(4)],
        sync_period=1,
        batch_size=1,
        seed=0,
        mesh=worker_mesh(2),
    ),
    '`make_partition("iid", labels, 4, seed="0")`': lambda tmp: make_partition(
        "iid", np.zeros(8, np.int32), 4, seed="0"
    ),
    '`make_partition("dirichlet", labels, ...)` with NaN in labels': lambda tmp: (
        make_partition("dirichlet", np.array([0.0, np.nan] * 4), 2, seed=0)
    ),
    "`RollbackPolicy(scale=2.0)`": lambda tmp: RollbackPolicy(scale=2.0),
    "SIGTERM during a run without checkpoints": preempted,
    "`theorem_bound` with too few steps": lambda tmp: bound(num_steps=10),
    "`stationary_vector` with a matrix that is not square": lambda tmp: (
        stationary_vector(np.zeros((2, 3)))
    ),
    "`stationary_vector` of workers that never meet": lambda tmp: stationary_vector(
        np.eye(2)
    ),
    "`round_radii` of an outer optimizer with a schedule": lambda tmp: radii(
        diloco(optax.sgd(optax.linear_schedule(0.7, 0.1, 10)))
    ),
    "`round_radii` of an outer Adam": lambda tmp: radii(diloco(optax.adam(0.1))),
    "`round_radii` of a strategy that does not name a worker's own state": lambda tmp: (
        radii(forgetful())
    ),
    "`virtual_model` with one weight too many": lambda tmp: virtual_model(
        np.zeros((1, 2)), np.zeros(3)
    ),
}
