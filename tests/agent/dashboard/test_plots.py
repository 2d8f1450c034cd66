"""Plots: what is drawn lies inside the picture, what was not observed is not drawn, and no text becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.dashboard.load_series import bucketed, load_plots, progress_plot, read_live, read_logs
from agent.dashboard.plot import HEIGHT, MOST_POINTS, WIDTH, Plot, Series, Shape, draw, thin
from agent.dashboard.watch import Count
from tests.agent.dashboard.workspaces import DECODE_LINE, PREFILL_LINE, log_of

VALUES = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)
POINTS = st.lists(st.tuples(st.floats(min_value=0, max_value=1e6), VALUES), min_size=1, max_size=40)


def a_plot(*series: Series, from_zero: bool = True) -> Plot:
    return Plot(title="title", x_label="x", y_label="y", series=series, from_zero=from_zero)


def a_series(points: list[tuple[float, float]], shape: Shape = Shape.LINE, name: str = "name") -> Series:
    return Series(name=name, look="one", shape=shape, points=tuple(points))


@given(POINTS, st.sampled_from(list(Shape)))
@settings(deadline=None, max_examples=200)
def test_everything_is_drawn_inside(points: list[tuple[float, float]], shape: Shape) -> None:
    """Whatever the values are: no coordinate leaves the picture, and none is not a number."""
    plot = a_plot(a_series(sorted(points), shape), a_series(sorted(points)), from_zero=False)
    svg = str(draw(plot)).split('<ul class="legend">')[0]

    assert "nan" not in svg
    assert "inf" not in svg
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", svg):
        assert -4 <= float(x) <= WIDTH
        assert -4 <= float(y) <= HEIGHT


@pytest.mark.parametrize("series", [(), (a_series([]),), (a_series([(1.0, 0.0)], Shape.TICKS),)])
def test_nothing_observed_is_a_sentence(series: tuple[Series, ...]) -> None:
    """Not an empty frame, which would look like zero."""
    assert "title: NOT_OBSERVED" in draw(a_plot(*series))


def test_one_point_is_enough() -> None:
    """Also where all values are zero."""
    assert "<path" in draw(a_plot(a_series([(0.0, 0.0)])))


def test_a_long_series_is_thinned_and_says_so() -> None:
    """First and last stay; the page stays small."""
    points = [(float(n), float(n % 7)) for n in range(20_000)]
    kept = thin(points)

    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert f"name, {MOST_POINTS} of 20000 drawn" in draw(a_plot(a_series(points)))


def test_texts_of_a_plot_are_escaped() -> None:
    """A name is text in the legend, the label and the spoken form."""
    svg = draw(Plot(title="<b>", x_label="<i>", y_label='"<u>', series=(a_series([(0.0, 1.0)], name="'<s>"),)))
    assert re.findall(r"<[bius]>", svg) == []


def test_a_plot_is_told_to_those_who_do_not_see_it() -> None:
    """What is drawn, how many points, from where to where."""
    label = re.search(r'aria-label="([^"]+)"', draw(a_plot(a_series([(0.0, 1.0), (1.0, 3.0)]))))
    assert label is not None
    assert label.group(1) == "title. y over x. name: 2 points, 1.00 to 3.00."


def test_ranks_speak_at_different_rates() -> None:
    """A rank that writes often does not weigh more."""
    observed = [(0.0, 0, 2.0)] * 9 + [(0.0, 1, 4.0)]

    assert bucketed(observed, lambda values: sum(values) / len(values)) == ((0.5, 3.0),)
    assert bucketed(observed, sum) == ((0.5, 6.0),)
    assert bucketed([], sum) == ()


def test_log_lines_become_queues_and_rates(tmp_path: Path) -> None:
    """Depths are means over ranks, rates are summed."""
    (tmp_path / "prefill.log").write_text(log_of(PREFILL_LINE, 10))
    (tmp_path / "decode.log").write_text("noise\n" + log_of(DECODE_LINE, 10))
    queues, running, rates = load_plots(read_logs([tmp_path / "prefill.log", tmp_path / "decode.log"]), simulated=True)

    assert queues.title == "Queues; 20 prefill and 20 decode log lines, SIMULATED"
    assert [y for _, y in queues.series[0].points] == [n % 7 for n in range(10)]
    assert {y for _, y in queues.series[4].points} == {2.0}
    assert [y for _, y in running.series[0].points] == [n % 7 for n in range(10)]
    assert {y for _, y in rates.series[0].points} == {2 * 113.68}
    assert {y for _, y in rates.series[1].points} == {2000.0}


def test_live_samples_become_the_same_plots(tmp_path: Path) -> None:
    """While the load runs; a line that is cut off is left out, and what no answer held is not drawn."""
    path = tmp_path / "live.jsonl"
    path.write_text(
        '{"at":1000.0,"role":"prefill","ranks":[{"rank":0,"waiting":4},{"rank":1,"waiting":6}]}\n'
        '{"at":1000.1,"role":"decode","ranks":[{"rank":0,"running":2,"gen_tok_s":100.0}]}\n'
        '{"at":1003.0,"role":"prefill","ranks":[{"rank":0,"waiting":2},{"rank":1,"waiting":0}]}\n'
        '{"at":1003.1,"role":"dec'
    )
    queues, running, rates = load_plots(read_live(path), simulated=False)

    assert queues.title == "Queues; 3 live samples"
    assert queues.series[0].points == ((0.5, 5.0), (3.5, 1.0))
    assert queues.series[1].points == ()
    assert running.series[0].points == ((0.5, 2.0),)
    assert rates.series[0].points == ((0.5, 100.0),)


def test_no_samples_yet_is_not_observed(tmp_path: Path) -> None:
    """The file comes with the first sample."""
    for plot in load_plots(read_live(tmp_path / "live.jsonl"), simulated=True):
        assert draw(plot).endswith("0 live samples, SIMULATED: NOT_OBSERVED</figcaption></figure>")


def test_progress_is_a_rate_between_two_news() -> None:
    """A count that fell belongs to another attempt and is no negative rate."""
    counts = [Count("t", 10.0, 0, 640), Count("t", 15.0, 30, 640), Count("t", 20.0, 0, 640), Count("t", 25.0, 10, 640)]
    plot = progress_plot(counts, simulated=False)

    assert plot.series[0].points == ((5.0, 6.0), (15.0, 2.0))
