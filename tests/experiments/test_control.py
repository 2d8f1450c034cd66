"""What the operator's file may say, and what may start under it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.control import ControlState, Mode, Only, approves, may_start, parse_control, paused
from experiments.errors import InputError
from experiments.knob import Cost

NOW = datetime(2026, 12, 1, 1, 0, tzinfo=UTC)
DIGEST = "0123456789abcdef" * 4
OTHER = "0123456700000000" * 4

# As design.md shows it.
FILE = """\
mode: run            # run | pause (finish what runs, start nothing) | drain (pause, then exit) | stop
authorized_until: 2026-12-01T07:00:00+08:00   # resource lease; nothing starts that cannot end before it
allow: [hot, restart]                          # cost classes that need no further word
approve: [0123456789abcdef]                    # single cards beyond that, each usable once
only: {card: C90}                              # optional: run just this, then pause
reason: "handing over at 7"
by: ops
"""


def state(**changes: object) -> ControlState:
    """The machines are lent for ten hours, hot and restart changes are allowed."""
    values: dict[str, object] = {
        "mode": Mode.RUN,
        "authorized_until": NOW + timedelta(hours=10),
        "allow": (Cost.HOT, Cost.RESTART),
        "by": "ops",
    }
    return ControlState.model_validate(values | changes)


def why(control: ControlState, **changes: object) -> str | None:
    values: dict[str, object] = {
        "now": NOW,
        "cost": Cost.RESTART,
        "card_digest": DIGEST,
        "card_name": "c03-concurrency-90",
        "approvals_used": (),
        "expected_s": 900.0,
    }
    return may_start(control, **(values | changes))  # type: ignore[arg-type]


def test_the_file_of_the_design_is_read() -> None:
    """Every key of the documented file has its value, the bare timestamp included."""
    read = parse_control(FILE.replace("[0123456789abcdef]", "[abcdef0123456789]"), "state.yaml")
    expected = ControlState(
        mode=Mode.RUN,
        authorized_until=datetime.fromisoformat("2026-12-01T07:00:00+08:00"),
        allow=(Cost.HOT, Cost.RESTART),
        approve=("abcdef0123456789",),
        only=Only(card="C90"),
        reason="handing over at 7",
        by="ops",
    )
    assert expected == read
    assert read.authorized_until == datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "2026-12-01T07:00:00+08:00",
        "2026-12-01 07:00:00+08:00",
        "2026-11-30T23:00:00Z",
        '"2026-12-01T07:00:00+08:00"',
        "'2026-11-30T23:00Z'",
        "2026-12-01T07:00+08:00  # until the morning",
        "2026-12-01T07:00:00.000+08:00",
    ],
)
@pytest.mark.parametrize("encode", [str, str.encode])
def test_the_lease_may_be_written_in_any_unambiguous_way(written: str, encode: type) -> None:
    """With or without quotes, T, seconds or a comment: the same instant."""
    text = f"mode: run\nauthorized_until: {written}\nby: ops\n"
    assert parse_control(encode(text), "state.yaml").authorized_until == datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wrong", "line", "message"),
    [
        ("mode: run\nallow: [hot]\n", 1, "missing key 'by'"),
        ("mode: Run\nby: ops\n", 1, "mode: must be 'run', 'pause', 'drain' or 'stop'"),
        ("mode: resume\nby: ops\n", 1, "mode: must be"),
        ("by: ops\nmode: run\n", 2, "`by` has to be the last key"),
        ("mode: run\nmode: pause\nby: ops\n", 2, "duplicate key"),
        ("mode: run\nauthorised_until: 2026-12-01T07:00:00Z\nby: ops\n", 2, "did you mean 'authorized_until'?"),
        ("mode: run\nauthorized_until: tomorrow\nby: ops\n", 2, "must be a time with its zone"),
        ("mode: run\nauthorized_until: 2026-12-01T07:00:00\nby: ops\n", 2, "must be a time with its zone"),
        ("mode: run\nauthorized_until: 1796079600\nby: ops\n", 2, "must be a time with its zone"),
        ("mode: run\nauthorized_until: 9999-12-31T23:59:59-12:00\nby: ops\n", 2, "must be a time with its zone"),
        ("mode: run\nallow: [cold]\nby: ops\n", 2, "allow[0]: must be 'hot', 'restart' or 'rebuild'"),
        ("mode: run\nallow: hot\nby: ops\n", 2, "allow: must be a list"),
        ("mode: run\napprove: [c03]\nby: ops\n", 2, "approve[0]: must be a card digest"),
        ("mode: run\napprove: [ABCDEF0123]\nby: ops\n", 2, "approve[0]: must be a card digest"),
        ("mode: run\napprove: [true]\nby: ops\n", 2, "approve[0]: must be a card digest"),
        ("mode: run\nonly: C90\nby: ops\n", 2, "only: must be a mapping with keys card"),
        ("mode: run\nby: 7\n", 2, "by: must be text"),
        ("mode: &a run\nby: ops\n", 1, "anchors"),
        ("", 1, "file is empty"),
    ],
)
def test_what_is_not_a_clear_order_is_refused_with_its_place(wrong: str, line: int, message: str) -> None:
    """Each mistake is named with its line, in words that say what to write instead."""
    with pytest.raises(InputError) as caught:
        parse_control(wrong, "state.yaml")
    assert line == caught.value.line
    assert message in caught.value.message


def test_a_digest_of_digits_only_is_a_digest() -> None:
    """A prefix that YAML takes for a number still means that prefix."""
    assert parse_control("mode: run\napprove: [12345678]\nby: ops\n", "s").approve == ("12345678",)


def test_a_file_cut_off_anywhere_never_allows_more() -> None:
    """Every beginning of the file is refused, or is the same order signed by a shorter name."""
    text = FILE.replace("[0123456789abcdef]", "[abcdef0123456789]")
    whole = parse_control(text, "state.yaml")
    accepted = 0
    for length in range(len(text)):
        try:
            cut = parse_control(text[:length], "state.yaml")
        except InputError:
            continue
        accepted += 1
        assert whole.model_copy(update={"by": cut.by}) == cut
    assert accepted == len("ops")  # `by: o`, `by: op` and `by: ops` without the line's end


@pytest.mark.parametrize("mode", [Mode.PAUSE, Mode.DRAIN, Mode.STOP])
def test_nothing_starts_unless_the_mode_is_run(mode: Mode) -> None:
    """Pause, drain and stop say so, with who said it and why."""
    assert why(state(mode=mode, reason="handing over")) == f"mode is {mode}, said by ops (handing over)"


def test_what_is_allowed_starts() -> None:
    """A restart change that fits into the lease needs no further word."""
    assert why(state()) is None
    assert why(state(), card_digest=None, card_name=None, cost=Cost.HOT) is None


def test_without_a_lease_nothing_starts() -> None:
    """The machines are lent only until a time that someone wrote."""
    assert why(state(authorized_until=None)) == "authorized_until is not set: the machines are not lent"


@pytest.mark.parametrize(
    ("left_s", "expected_s", "starts"),
    [
        (900.0, 899.0, True),
        (900.0, 900.0, False),
        (900.0, 901.0, False),
        (900.0, float("nan"), False),
        (900.0, float("inf"), False),
        (900.0, -1.0, False),
        (0.0, 0.0, False),
        (-60.0, 0.0, False),
    ],
)
def test_nothing_starts_that_cannot_end_in_the_lease(left_s: float, expected_s: float, starts: bool) -> None:
    """The whole expected time has to lie inside the lease; what cannot be estimated does not fit."""
    control = state(authorized_until=NOW + timedelta(seconds=left_s))
    assert (why(control, expected_s=expected_s) is None) is starts


def test_a_refusal_for_time_says_how_long_and_until_when() -> None:
    """The operator reads how much is missing."""
    control = state(authorized_until=NOW + timedelta(minutes=10))
    assert why(control) == (
        "it takes about 0:15:00 and the authorization ends in 0:10:00, at 2026-12-01T01:10:00+00:00"
    )


def test_a_cost_that_is_not_allowed_needs_an_approval() -> None:
    """The refusal is the command that would allow it."""
    control = state(allow=(Cost.HOT,))
    assert why(control) == "a restart change needs an approval: tuneloop approve 0123456789ab"
    assert why(state(allow=(Cost.HOT,), approve=(DIGEST,))) is None
    assert why(control, card_digest=None, card_name=None) == "a start with cost restart is not in `allow`"


def test_a_rebuild_always_needs_an_approval() -> None:
    """Even if someone lists it among the allowed costs."""
    control = state(allow=tuple(Cost))
    assert "needs an approval" in (why(control, cost=Cost.REBUILD) or "")
    assert why(state(allow=tuple(Cost), approve=(DIGEST[:8],)), cost=Cost.REBUILD) is None


def test_an_approval_is_used_once() -> None:
    """A spent approval allows nothing, and a prefix that one card has spent is no good for the next."""
    control = state(allow=(), approve=(DIGEST,))
    assert "its approval was used" in (why(control, approvals_used=(DIGEST,)) or "")
    by_prefix = state(allow=(), approve=(DIGEST[:8],))
    assert approves(by_prefix, OTHER, ())
    assert not approves(by_prefix, OTHER, (DIGEST,))


def test_an_approval_names_one_card() -> None:
    """Other cards are not covered."""
    assert not approves(state(approve=(DIGEST,)), OTHER, ())
    assert not approves(state(approve=(DIGEST[:16],)), OTHER, ())


def test_an_approval_does_not_lift_mode_scope_or_lease() -> None:
    """It speaks about cost only."""
    approved = {"approve": (DIGEST,), "allow": ()}
    assert why(state(**approved, mode=Mode.PAUSE)) is not None
    assert why(state(**approved, authorized_until=NOW)) is not None
    assert why(state(**approved, only=Only(card="c04"))) is not None


@pytest.mark.parametrize(
    ("card", "runs"),
    [
        ("c03-concurrency-90", True),
        ("C03-Concurrency-90", True),
        ("c03", True),
        ("c03-concurrency", True),
        (DIGEST, True),
        (DIGEST[:8], True),
        (DIGEST[:7], False),
        ("c0", False),
        ("c030", False),
        ("c03-concurrency-9", False),
        ("c04", False),
    ],
)
def test_only_means_exactly_that_card(card: str, runs: bool) -> None:
    """By name, number or digest; nothing that merely looks alike, and no run without a card."""
    assert (why(state(only=Only(card=card))) is None) is runs
    assert why(state(only=Only(card=card)), card_digest=None, card_name=None) is not None


def test_what_holds_while_the_file_is_unreadable_is_pause() -> None:
    """However long the reason is."""
    assert paused("x" * 10_000).mode is Mode.PAUSE
    assert why(paused("state.yaml is missing")) == "mode is pause, said by tuneloop (state.yaml is missing)"


@settings(deadline=None, max_examples=300)
@given(text=st.text(max_size=200) | st.binary(max_size=200))
def test_no_text_is_more_than_refused(text: str | bytes) -> None:
    """Arbitrary content is an InputError or an order, never another exception."""
    with contextlib.suppress(InputError):
        parse_control(text, "state.yaml")
