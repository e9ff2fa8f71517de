"""Text from a language model, one token after the other.

Each token is drawn from softmax(logits / temperature) after the tokens before it, of
which the model sees the last `context`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Key, UInt32

from olsgd_jax._checks import check_count, check_number, check_seed
from olsgd_jax.training.tasks import Task
from olsgd_jax.types import ArrayTree, ModelState, Params

# The last tokens, and how many of them are known so far.
Seen = tuple[Int32[Array, " context"], Int32[Array, ""]]


def sample_text(
    task: Task,
    params: Params,
    model_state: ModelState,
    alphabet: str,
    context: int,
    *,
    length: int = 300,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """Samples text from a model, as at the beginning of a line.

    Args:
      task: the task; its `predict` must return logits for the token after each token.
      params: parameters without a worker axis, as from `model_of`.
      model_state: model state that belongs to them.
      alphabet: the character of each token.
      context: number of tokens that the model was trained to see.
      length: number of characters.
      temperature: at most 1e6; towards 0, the likeliest token always comes next.
      seed: seed of the draws.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.training import Task, sample_text
    >>> def after_each_a_b(params, model_state, tokens):
    ...     return 99.0 * jax.nn.one_hot(1 - tokens, 2)
    >>> task = Task(None, None, predict=after_each_a_b)
    >>> sample_text(task, (), (), "ab", context=4, length=6)
    'bababa'
    """
    check_count("context", context)
    check_count("length", length)
    check_number("temperature", temperature, 0, 1e6, "(]")
    check_seed("seed", seed)
    if task.predict is None:
        raise ValueError("task must have a predict to sample from, got None")
    # Of NumPy, since several processes may hold the parameters together.
    first = np.int32(max(alphabet.find("\n"), 0))
    sharpness = np.float32(1 / temperature)
    given = first, np.uint32(seed), sharpness, context, length
    tokens = _tokens(task.predict, params, model_state, *given)
    return "".join(alphabet[token] for token in tokens.tolist())


@functools.partial(jax.jit, static_argnames=("predict", "context", "length"))
def _tokens(
    predict: Callable[[Params, ModelState, ArrayTree], jax.Array],
    params: Params,
    model_state: ModelState,
    first: Int[Array, ""],
    seed: UInt32[Array, ""],
    sharpness: Float[Array, ""],
    context: int,
    length: int,
) -> Int32[Array, " length"]:
    def draw(seen: Seen, key: Key[Array, ""]) -> tuple[Seen, Int32[Array, ""]]:
        # Tokens after the last known one are arbitrary: no logits before them depend
        # on them.
        window, num_known = seen
        logits = predict(params, model_state, window[None])[0, num_known - 1]
        scaled = logits.astype(jnp.float32) * sharpness
        token = jax.random.categorical(key, scaled).astype(jnp.int32)
        is_full = num_known == context
        window = jnp.where(is_full, jnp.roll(window, -1), window)
        num_known = jnp.minimum(num_known + 1, context)
        return (window.at[num_known - 1].set(token), num_known), token

    keys = jax.random.split(jax.random.key(seed), length)
    window = jnp.zeros(context, jnp.int32).at[0].set(first)
    _, tokens = jax.lax.scan(draw, (window, jnp.ones((), jnp.int32)), keys)
    return tokens
