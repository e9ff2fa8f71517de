"""Tells collectives between workers from those between the devices of one worker.

Devices are numbered in the order of the mesh, whose first axis is the workers', so the
devices of a worker have consecutive numbers. XLA prints device groups as lists, as a
reshaped and transposed range, or as axes of a mesh:

    replica_groups={{0,4},{1,5},{2,6},{3,7}}
    replica_groups=[4,2]<=[2,4]T(1,0)             the same
    replica_groups=mesh['a'=2,'b'=4] {'a'}        the same
"""

import re

import numpy as np

from olsgd_jax.overlap.hlo.schedule import Instruction

_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{}]+\})\}")
_RANGE = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{((?:'\w+',?)+)\}")


def is_inside(collective: Instruction, worker_devices: int) -> bool:
    """Whether a collective stays within workers; False if it prints no groups.

    >>> from olsgd_jax.overlap import read_schedule
    >>> sent = read_schedule('''HloModule sent, is_scheduled=true
    ... ENTRY %main (x: f32[8]) -> f32[8] {
    ...   %x = f32[8]{0} parameter(0)
    ...   ROOT %sum = f32[8]{0} all-reduce(%x), replica_groups=[2,4]<=[8]
    ... }''').computations["main"][1]
    >>> is_inside(sent, worker_devices=4), is_inside(sent, worker_devices=2)
    (True, False)
    """
    groups = _groups(collective.attributes)
    return bool(groups) and all(
        len({device // worker_devices for device in group}) == 1 for group in groups
    )


def _groups(attributes: str) -> list[list[int]]:
    if listed := _LISTED.search(attributes):
        return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
    if found := _RANGE.search(attributes):
        devices = np.arange(np.prod(_numbers(found[3]))).reshape(_numbers(found[3]))
        order = _numbers(found[4]) if found[4] else range(devices.ndim)
        return devices.transpose(order).reshape(int(found[1]), -1).tolist()
    if axes := _AXES.search(attributes):
        names, sizes = zip(*re.findall(r"'(\w+)'=(\d+)", axes[1]), strict=True)
        shape, joined = [int(n) for n in sizes], re.findall(r"\w+", axes[2])
        order = sorted(range(len(shape)), key=lambda axis: names[axis] in joined)
        devices = np.arange(np.prod(shape)).reshape(shape).transpose(order)
        return devices.reshape(-1, np.prod(devices.shape[-len(joined) :])).tolist()
    return []


def _numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]
