"""What JAX wrote at the end of a process is said again in a sentence."""

import pytest

from experiments.processes.exit_reason import JAX_ENDED_IT, explain_exit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Traceback (most recent call last): ...", None),
        (f"{JAX_ENDED_IT} heartbeats):\n1\n", "process 0 died"),
        (f"{JAX_ENDED_IT} stopped sending heartbeats):\n1\n12\n", "process 1 and 12 "),
        (f"{JAX_ENDED_IT} RPC: /RegisterTask", "some processes did not come in time"),
        (
            f"{JAX_ENDED_IT} The first task at the barrier: 3.",
            "process 3 came to its e",
        ),
    ],
)
def test_what_jax_says_is_said_again_in_a_sentence(text, expected):
    said = explain_exit(text)
    assert said is expected is None or said.startswith(expected)
