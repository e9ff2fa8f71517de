"""Figures have the colours of the page, and labels that keep off each other."""

import itertools
import re

import numpy as np
import pytest

from experiments.pages import drawing, html_page
from experiments.pages.figures import Line, draw_lines
from experiments.pages.labels import boxes_around, shared_area


def test_the_figures_colours_are_the_pages_light_ones():
    text = html_page.to_page("", [], [])
    light = dict(re.findall(r"--(run-\d|text): (#\w+);", text.split("@media")[0]))
    assert light.pop("text") == drawing.TEXT
    assert tuple(light.values()) == drawing.COLOURS


def labels_of(*lines):
    """The labels of a figure, and where they stand on paper."""
    lines = {str(i): Line(*line[:2], i, line[2]) for i, line in enumerate(lines)}
    figure = draw_lines(lines, "x", "y")
    figure.draw_without_rendering()
    texts = figure.axes[0].texts
    return [text.get_text() for text in texts], [
        text.get_window_extent() for text in texts
    ]


def test_labels_of_points_apart_are_all_written_and_do_not_overlap():
    names = ["1", "2", "4", "8"]
    straight = ([1, 1, 1, 1], [0, 1, 2, 3], names)
    beside = ([1.02, 1.02, 1.02, 1.02], [0, 1, 2, 3], names)
    texts, boxes = labels_of(straight, beside)
    assert texts == [*names, *names]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)


def test_points_of_two_lines_that_lie_on_each_other_have_labels_apart():
    lines = ([1, 2], [0, 0], ["1", "2"]), ([1, 2], [0, 1], ["3", "4"])
    texts, boxes = labels_of(*lines)
    assert texts == ["1", "2", "3", "4"]
    assert not boxes[0].overlaps(boxes[2])


def test_points_of_a_line_that_lie_on_each_other_share_a_label():
    texts, _ = labels_of(([1, 1, 1], [0, 0.001, 5], ["1", "2", "8"]))
    assert texts == ["1, 2", "8"]


@pytest.mark.parametrize(
    ("middle", "size", "area"),
    [
        ((0, 0), (2, 2), 4),  # the same
        ((1, 1), (2, 2), 1),
        ((0, 0), (10, 1), 2),
        ((0.5, 0), (1, 1), 1),  # inside
        ((2, 0), (2, 2), 0),  # side by side
        ((5, 0), (2, 2), 0),
        ((5, 5), (2, 2), 0),  # apart in both directions
    ],
)
def test_boxes_share_an_area(middle, size, area):
    box, other = (
        boxes_around(np.array([place]), np.array(lengths) / 2)
        for place, lengths in (((0, 0), (2, 2)), (middle, size))
    )
    assert shared_area(box[0], other) == shared_area(other[0], box) == area
    assert shared_area(box[0], np.concatenate([box, other])) == 4 + area


@pytest.mark.parametrize(("num", "ticks"), [(3, [1, 2, 3]), (20, [1, 2, 5, 10, 20])])
def test_a_logarithmic_axis_of_many_points_has_round_ticks(num, ticks):
    x = list(range(1, num + 1))
    figure = draw_lines({"a": Line(x, x, 0)}, "x", "y", log_x=True)
    low, high = figure.axes[0].get_xlim()
    shown = [x for x in figure.axes[0].get_xticks() if low <= x <= high]
    assert shown == pytest.approx(ticks)
