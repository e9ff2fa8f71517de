"""Process 0 finds out who is there, and all others hear it."""

import threading

import pytest

from experiments.launch import free_coordinator
from olsgd_jax.training.cluster.rendezvous import call_roll


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([(1, 3)], "2 of 3 processes came within 1 s; missing: 2"),
        ([(1, 3), (1, 3)], "another 1 of 3 beside 0 of 3"),
        ([(1, 2)], "another 1 of 2 beside 0 of 3"),
    ],
)
def test_a_roll_call_finds_what_is_wrong(others, message):
    coordinator, said = free_coordinator(), []

    def take_part(number, count):
        with pytest.raises(ConnectionError) as caught:
            call_roll(coordinator, count, number, timeout=1)
        said.append(str(caught.value))

    threads = [
        threading.Thread(target=take_part, args=who) for who in [(0, 3), *others]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([x for x in said if message in x]) >= 2, said


def test_without_process_0_the_others_say_so():
    with pytest.raises(
        ConnectionError, match=r"process 0 of 2 did not come within 1 s"
    ):
        call_roll(free_coordinator(), 2, 1, timeout=1)
