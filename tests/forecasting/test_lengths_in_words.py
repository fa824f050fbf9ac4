"""Lengths of time in words: as they were written, and such that they can be read back."""

import pytest

from stochflow.forecasting.times import TimeAxis

AXIS = TimeAxis("datetime")


@pytest.mark.parametrize(
    "words", ["30d", "365d", "1w", "4w", "90min", "6h", "1d", "10s", "500ms", "36h", "1000d", "13w"]
)
def test_whole_lengths_come_back_as_they_were_written(words):
    assert AXIS.show_length(AXIS.length(words, "horizon")) == words


def test_a_day_that_has_lost_its_last_digits_is_a_day():
    assert AXIS.show_length(86399.9999) == "1d"


@pytest.mark.parametrize("seconds", [1e-8, 0.0123, 12.3, 21492.0, 1282176.3, 1e9, 1e12])
def test_every_length_can_be_read_back_to_three_digits(seconds):
    assert AXIS.length(AXIS.show_length(seconds), "horizon") == pytest.approx(seconds, rel=5e-3)


@pytest.mark.parametrize("like", ["474min", "30d", "2.5h"])
def test_a_column_of_lengths_is_in_one_unit(like):
    longest = AXIS.length(like, "horizon")
    shown = [AXIS.show_length(length, like=longest) for length in (3600.0, 12468.0, longest)]
    assert len({each.lstrip("0123456789.") for each in [*shown, AXIS.show_length(longest)]}) == 1
    read = [AXIS.length(each, "gap") for each in shown]
    assert read == pytest.approx([3600.0, 12468.0, longest], rel=5e-3)
