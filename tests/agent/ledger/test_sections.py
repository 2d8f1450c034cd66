"""Parts of the pages that the scripted night does not reach: bundles, drift, evaluations, warm caches, refusals."""

from __future__ import annotations

from datetime import timedelta

from agent.ledger.effects import effect_text, outcome_label
from agent.ledger.figures import (
    change_figure,
    duration_figure,
    figure,
    metric_figure,
    moment,
    rate_text,
    size_figure,
    value_text,
)
from agent.ledger.goal_section import goal_line
from agent.ledger.words import Words
from experiments.classification import classify_incomparable
from experiments.comparison import Comparison, Refusal
from experiments.ledger import (
    CardAdmitted,
    CardClosed,
    ConfigurationKept,
    LedgerEntry,
    QualityEvaluated,
    TrialsClassified,
)
from experiments.live import RankLive, Spread
from experiments.measurement import WindowKind
from experiments.profile import ServerProfile
from experiments.scenario import CacheState
from experiments.serving_config import Change, Kind, Role, ServingConfig
from experiments.trial import Tier
from tests.agent.ledger.page_texts import texts_of
from tests.factories import (
    EVENING,
    Performance,
    a_card,
    a_config,
    a_draft,
    a_goal,
    a_measurement,
    a_night,
    a_record,
    a_run,
    an_opening,
)


def built(entries: list[LedgerEntry]) -> str:
    """All Markdown of a ledger in one text."""
    return "\n".join(text for path, text in texts_of(entries).items() if path.endswith(".md"))


def a_bundle() -> Change:
    layout = a_draft("prefill.layout.expert-location", "default", "scene-16k").change
    dispatch = Change(role=Role.PREFILL, kind=Kind.FLAG, name="ep-dispatch", from_value="dynamic", to_value="static")
    return layout.model_copy(update={"also": dispatch})


def test_a_bundle_is_credited_as_a_whole() -> None:
    """Layout and dispatch together: both parts are named, neither gets the effect (field record 001)."""
    draft = a_draft("prefill.layout.expert-location", "default", "scene-16k")
    card = a_card(draft.model_copy(update={"change": a_bundle()}))
    text = built([an_opening(), CardAdmitted(at=EVENING, card=card)])
    assert "| declared bundle | **prefill expert-location default → scene-16k with prefill ep-dispatch" in text
    assert "The effect belongs to the combination, not to either part." in text


def test_a_refusal_stands_with_all_its_reasons() -> None:
    """A comparison that was not allowed is no effect: the page lists why."""
    card = a_card()
    record = a_record("t1", measurement=a_measurement(Performance(), requests=320))
    refusal = Refusal(reasons=("different requests: 640 and 320", "the native window follows different rules: a and b"))
    classification = classify_incomparable(refusal)
    entries = [
        an_opening(),
        CardAdmitted(at=EVENING, card=card),
        *a_run(record, card, card.config, 320, EVENING),
        TrialsClassified(
            at=EVENING,
            trial_ids=("t1",),
            tier=Tier.SCREENING,
            card_digest=card.digest,
            classification=classification,
        ),
        CardClosed(at=EVENING, card_digest=card.digest, classification=classification, kept=False),
    ]
    text = built(entries)
    assert "- different requests: 640 and 320\n- the native window follows different rules: a and b\n" in text
    assert "| not comparable | – | **fault: evidence incomplete**" in text


def test_what_the_servers_were_seen_to_do_stands_beside_the_numbers() -> None:
    """Queues over all ranks of a server, and a profile's conclusions; what no sample held is not observed."""
    live = tuple(
        RankLive(
            role=Role.DECODE,
            rank=rank,
            samples=12,
            running=Spread(p50=float(rank), max=8.0, n=12),
            waiting=Spread(p50=0.0, max=2.0, n=12),
            token_usage=Spread(p50=0.25, max=0.5, n=12),
        )
        for rank in range(3)
    )
    profile = ServerProfile(
        role=Role.DECODE,
        basis="device",
        steps=5,
        traces=16,
        read=4,
        events=900,
        span_s=0.25,
        idle=0.125,
        families={"attention": 0.6, "moe": 0.4},
        top=(),
    )
    record = a_record("t1", measurement=a_measurement(Performance(), requests=320))
    record = record.model_copy(update={"live": live, "profiles": (profile,)})
    text = built([an_opening(), *a_run(record, None, a_config(), 320, EVENING)])

    assert "| decode | 3 | 12 | 1.00 (8.00) | 0.00 (2.00) | 0.25 (0.50) | NOT_OBSERVED |" in text
    assert "decode (device): attention 60%, moe 40%; idle 12% of 0.250 s" in text


def test_an_evaluation_of_the_outputs_is_on_the_card() -> None:
    """Passed, failed or without an answer, with what was seen."""
    night = a_night()
    place = next(i for i, entry in enumerate(night, start=1) if isinstance(entry, ConfigurationKept))
    kept = night[place - 1]
    assert isinstance(kept, ConfigurationKept)
    evaluated = QualityEvaluated(
        at=kept.at, card_digest=kept.card_digest, outcome="failed", detail="gsm8k 61.2 of 93.0"
    )
    text = built([*night[:place], evaluated])
    assert "UTC | failed | gsm8k 61.2 of 93.0 |" in text
    assert "quality: failed" in text


def test_a_shift_of_the_pool_is_told_with_its_runs() -> None:
    """Two runs of the incumbent far below its earlier ones: the page says by how much and which."""
    entries: list[LedgerEntry] = [an_opening()]
    at = EVENING
    for number, factor in enumerate((1.0, 1.004, 0.997, 1.001, 0.999, 1.003, 0.9, 0.9)):
        measured = a_measurement(Performance().scaled(factor), requests=320)
        entries += a_run(a_record(f"t{number}", measurement=measured), None, a_config(), 320, at)
        at += timedelta(minutes=8)
    text = built(entries)
    assert "Drift of the pool:" in text
    assert "against its own earlier runs, shown by two runs: [t6](cards/start.md#trial-t6), [t7]" in text


def test_a_warm_scenario_states_its_proof() -> None:
    """The share that each request must reach, and the requests that prepare and check it."""
    cache = CacheState(state="warm", per_request_min=0.9, seed_requests=16, check_requests=16)
    goal = a_goal(scenario=a_goal().scenario.model_copy(update={"cache": cache}))
    text = built([an_opening(goal)])
    assert "warm: every request reaches at least 90.00 %; 16 seed and 16 check requests" in text


def test_a_goal_to_minimise_says_minimise() -> None:
    """The sentence follows the better side of the metric."""
    goal = a_goal()
    objective = goal.objective.model_copy(update={"metric": "ttft_mean", "target": None})
    line = goal_line(a_goal(objective=objective, constraints=()), 16, Words())
    assert line.startswith("Minimise mean TTFT (native window) subject to no constraint")


def test_a_card_without_comparison_shows_no_number() -> None:
    """An admitted card that has not run is open, with dashes for effects."""
    text = built([an_opening(), CardAdmitted(at=EVENING, card=a_card())])
    assert "| – | – | **open** | nothing yet |" in text
    assert "| measured | NOT_OBSERVED |" in text


def test_numbers_read_alike_everywhere() -> None:
    """Two decimals and a unit; what was not observed is said in one word."""
    shown = {
        figure(236.8268, "tok/s/card"): "236.83 tok/s/card",
        change_figure(0.3227): "+32.27 %",
        change_figure(-0.0511): "-5.11 %",
        duration_figure(1382): "23 min 02 s",
        duration_figure(59.994): "59.99 s",
        duration_figure(4320): "1 h 12 min",
        size_figure(512): "512 B",
        size_figure(5_242_880): "5.00 MiB",
        size_figure(3 * 1024**3): "3.00 GiB",
        moment(EVENING): "2026-12-01 20:00:00 UTC",
        rate_text(None): "unlimited",
        rate_text(6.0): "6 req/s",
        value_text(None): "unset",
        value_text(True): "true",
        metric_figure("failed_requests", 0.0): "0",
        metric_figure("failed_requests", 0.5): "0.50",
        metric_figure("tpot_mean", 9.4): "9.40 ms",
    }
    assert list(shown) == list(shown.values())


def test_what_was_not_observed_is_said_in_one_word() -> None:
    """Never a zero, a dash or a blank."""
    missing = [figure(None, "ms"), figure(float("nan")), duration_figure(None), moment(None), change_figure(None)]
    assert set(missing) == {"NOT_OBSERVED"}


def test_an_effect_names_its_basis() -> None:
    """Interval, window, N and runs on both sides."""
    comparison = a_comparison()
    text = effect_text(comparison, 640, Words())
    assert text == "+32.27 % [+30.00 %, +34.00 %] (native window, N=640, 2 against 3 runs)"


def a_comparison() -> Comparison:
    return Comparison(
        metric="output_tok_s_per_card",
        window=WindowKind.NATIVE,
        rule="aisbench-2026-08",
        incumbent_mean=179.04,
        challenger_mean=236.8268,
        gain=0.3227,
        low=0.30,
        high=0.34,
        confidence=0.95,
        noise_relative_sd=0.005,
        incumbent_trials=("t1", "t3", "t5"),
        challenger_trials=("t2", "t4"),
    )


def test_an_outcome_is_told_in_words() -> None:
    """Route and reason become one label."""
    refusal = classify_incomparable(Refusal(reasons=("one side has no valid run",)))
    assert outcome_label(refusal, Words()).text == "fault: evidence incomplete"


def test_settings_with_odd_values_are_shown_as_they_are() -> None:
    """Whole configurations are listed by path, true and unset spelled as in a file."""
    opening = an_opening().model_copy(
        update={"starting": ServingConfig(settings={"decode.flag.disable-radix-cache": True})}
    )
    assert "| `decode.flag.disable-radix-cache` | `true` |" in built([opening])
