"""Labels of points that do not lie on each other."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Place = tuple[float, float]

_HEIGHT, _LETTER, _GAP = 9.0, 5.5, 4.0  # in points, as all lengths here
# Where a label may stand, best first: to which side of its point.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


class Points(NamedTuple):
    """Points of one line."""

    x: Sequence[float]
    y: Sequence[float]
    labels: Sequence[str]
    colour: str


class Box(NamedTuple):
    """A piece of paper."""

    x: float  # of its middle
    y: float
    width: float
    height: float

    def overlap(self, other: "Box") -> float:
        """Gives the area that two boxes share."""
        width = _shared(self.x, self.width, other.x, other.width)
        return width * _shared(self.y, self.height, other.y, other.height)


def _shared(middle: float, length: float, other: float, other_length: float) -> float:
    """Gives the length that two intervals share."""
    shared = (length + other_length) / 2 - abs(middle - other)
    return max(0.0, min(shared, length, other_length))


def place_labels(figure: Figure, axes: Axes, lines: Sequence[Points]) -> None:
    """Writes labels beside their points, where neither point nor label is yet.

    Points of a line that lie on each other share a label.
    """
    figure.draw_without_rendering()  # from here on it is known where points lie
    scale = 72 / figure.dpi
    low, high = scale * axes.bbox.get_points()
    inside = Box(*((low + high) / 2), *(high - low))
    on_paper = [
        [
            tuple(scale * axes.transData.transform(xy))
            for xy in zip(points.x, points.y, strict=True)
        ]
        for points in lines
    ]
    taken = [Box(x, y, 6, 6) for places in on_paper for x, y in places]
    taken += [Box(x, y, 2, 2) for places in on_paper for x, y in _between(places)]
    for points, places in zip(lines, on_paper, strict=True):
        for i, text in _merged(places, points.labels):
            label = _best(places[i], text, inside, taken)
            taken.append(label)
            axes.annotate(
                text,
                (points.x[i], points.y[i]),
                (label.x - places[i][0], label.y - places[i][1]),
                textcoords="offset points",
                ha="center",
                va="center",
                size=9,
                color=points.colour,
            )


def _between(places: Sequence[Place]) -> Iterator[Place]:
    """Goes along a line, so that labels keep off it."""
    for (x, y), (next_x, next_y) in itertools.pairwise(places):
        num = int(max(abs(next_x - x), abs(next_y - y)) / 2)
        for i in range(1, num):
            yield x + (next_x - x) * i / num, y + (next_y - y) * i / num


def _best(place: Place, text: str, inside: Box, taken: Sequence[Box]) -> Box:
    """Finds the side of a point where a label is least in the way."""
    x, y = place
    width = _LETTER * len(text)
    boxes = [
        Box(
            x + right * (_GAP + width / 2),
            y + up * (_GAP + _HEIGHT / 2),
            width,
            _HEIGHT,
        )
        for right, up in _SIDES
    ]

    def cost(box: Box) -> float:
        outside = box.width * box.height - box.overlap(inside)
        return outside + sum(box.overlap(other) for other in taken)

    return min(boxes, key=cost)


def _merged(
    places: Sequence[Place], labels: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """Joins the labels of points that follow each other in less than a letter."""
    group: list[int] = []
    for i in range(len(labels)):
        if (
            group
            and max(
                abs(places[i][0] - places[group[0]][0]),
                abs(places[i][1] - places[group[0]][1]),
            )
            >= _HEIGHT
        ):
            yield group[0], ", ".join(labels[j] for j in group)
            group = []
        group.append(i)
    if group:
        yield group[0], ", ".join(labels[j] for j in group)
