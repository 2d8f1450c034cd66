"""What a set of sessions says: medians, tails, waste, and paired intervals that call a tie a tie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.bench.planner.strategies import Session

RESAMPLES = 2000
LEVEL = 0.95
WORSE = 0.99  # a final pick below this share of the start's worth is worse than the start


def quantile(values: Sequence[float], share: float) -> float:
    """The order statistic: a value that a session really reached."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def summary(worths: Sequence[Sequence[float]], sessions: Sequence[Session], start: float) -> dict[str, object]:
    """`worths[seed][launch]`: the share of the optimum of what would be shipped after that launch."""
    final = [row[-1] for row in worths]
    launches = sum(session.launches for session in sessions)
    wasted = sum(session.infeasible + session.duplicates for session in sessions)
    cards: dict[str, int] = {}
    for session in sessions:
        for source, count in session.cards.items():
            cards[source] = cards.get(source, 0) + count
    return {
        "median": round(quantile(final, 0.5), 4),
        "p10": round(quantile(final, 0.1), 4),
        "mean": round(float(np.mean(final)), 4),
        "reach_95_percent": round(float(np.mean([value >= 0.95 for value in final])), 4),
        "wasted": round(wasted / launches, 4),
        "repeats": round(sum(session.repeats for session in sessions) / launches, 4),
        "faults": sum(session.faults for session in sessions),
        "worse_than_start": sum(value < WORSE * start for value in final),
        "anytime_median": [round(quantile([row[i] for row in worths], 0.5), 4) for i in range(len(worths[0]))],
        **({"cards": cards} if cards else {}),
    }


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, object]:
    """Mean difference over seeds with a bootstrap interval; a tie where the interval holds 0."""
    differences = np.asarray(ours) - np.asarray(theirs)
    chance = np.random.default_rng(0)
    means = chance.choice(differences, (RESAMPLES, len(differences))).mean(axis=1)
    low, high = (float(np.quantile(means, share)) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    verdict = "better" if low > 0 else "worse" if high < 0 else "tie"
    return {
        "mean_difference": round(float(differences.mean()), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "verdict": verdict,
    }
