"""Labels of points, placed so that they do not overlap.

All lengths are in points of paper. A box is its lower left and upper right corner.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Box = Float[np.ndarray, "2 2"]
Boxes = Float[np.ndarray, "num 2 2"]
Places = Float[np.ndarray, "num 2"]

_HEIGHT, _LETTER, _GAP = 9.0, 5.5, 4.0
# Sides of its point where a label may be, best first.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


class Points(NamedTuple):
    """Points of one line."""

    x: Sequence[float]
    y: Sequence[float]
    labels: Sequence[str]
    colour: str


def place_labels(figure: Figure, axes: Axes, lines: Sequence[Points]) -> None:
    """Writes labels beside their points, where they cover the least.

    Points of a line that coincide share a label.
    """
    figure.draw_without_rendering()  # sets the positions of all points
    scale = 72 / figure.dpi
    inside = scale * axes.bbox.get_points()[None]
    on_paper = [
        scale * axes.transData.transform(np.column_stack([points.x, points.y]))
        for points in lines
    ]
    taken = np.concatenate(
        [
            *(boxes_around(places, np.array([3.0, 3.0])) for places in on_paper),
            *(boxes_around(_between(x), np.array([1.0, 1.0])) for x in on_paper),
        ]
    )
    for points, places in zip(lines, on_paper, strict=True):
        for i, text in _merged(places, points.labels):
            half = np.array([_LETTER * len(text), _HEIGHT]) / 2
            middles = places[i] + np.array(_SIDES) * (_GAP + half)
            boxes = boxes_around(middles, half)
            # What a label covers of points, lines and labels, less what is inside.
            costs = [shared_area(x, taken) - shared_area(x, inside) for x in boxes]
            best = np.argmin(np.round(costs, 6))
            taken = np.concatenate([taken, boxes[best, None]])
            axes.annotate(
                text,
                (points.x[i], points.y[i]),
                middles[best] - places[i],
                textcoords="offset points",
                ha="center",
                va="center",
                size=9,
                color=points.colour,
            )


def boxes_around(middles: Places, half: Float[np.ndarray, "2"]) -> Boxes:
    """Makes boxes of the same size from their middles and half of their size."""
    return np.stack([middles - half, middles + half], axis=1)


def shared_area(box: Box, others: Boxes) -> float:
    """Adds up the areas that a box shares with each of the others."""
    low, high = np.maximum(box[0], others[:, 0]), np.minimum(box[1], others[:, 1])
    return float(np.prod(np.maximum(high - low, 0), axis=1).sum())


def _between(places: Places) -> Places:
    """Gives places along a line, so that labels keep off it."""
    along = [np.empty((0, 2))]
    for start, end in itertools.pairwise(places):
        num = int(np.abs(end - start).max() / 2)
        along.append(np.linspace(start, end, num, endpoint=False)[1:])
    return np.concatenate(along)


def _merged(places: Places, labels: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Joins the labels of successive points that are less than a letter apart."""
    groups: list[list[int]] = []
    for i, place in enumerate(places):
        if groups and np.abs(place - places[groups[-1][0]]).max() < _HEIGHT:
            groups[-1].append(i)
        else:
            groups.append([i])
    for group in groups:
        yield group[0], ", ".join(labels[i] for i in group)
