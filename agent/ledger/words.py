"""The words of the ledger. English is the key; `chinese.py` has the same sentence for readers of Chinese.

Sentences that were stored with an entry (an explanation, a mechanism) stay as they were written.
"""

from __future__ import annotations

from enum import StrEnum

from agent.ledger.chinese import CHINESE
from experiments.metric import METRICS
from experiments.trial import Reason, Route, Stage

LANGUAGES = ("en", "zh")

# Names whose spelling is not just that of the value.
ENGLISH_LABELS: dict[StrEnum, str] = {
    Reason.SLO_VIOLATED: "SLO violated",
    Reason.NOT_EXCLUDED: "a gain is not excluded",
    Reason.POST_PROCESSING: "post-processing",
    Route.ORCHESTRATION_FAULT: "orchestration fault",
    Stage.WARM_UP: "warm-up",
}


class Words:
    """`t("Kept {name}", name=…)` in one language. An unknown language is a ValueError."""

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"no such language of the ledger: {lang[:20]!r}; there are {', '.join(LANGUAGES)}")
        self.lang = lang

    def __call__(self, sentence: str, **values: object) -> str:
        if self.lang == "zh":
            sentence = CHINESE[sentence]
        return sentence.format(**values) if values else sentence

    def label(self, member: StrEnum) -> str:
        """A stored value as a person says it: `valid_negative` → "valid negative"."""
        english = ENGLISH_LABELS.get(member) or str(member).replace("_", " ")
        return CHINESE[english] if self.lang == "zh" else english

    def metric(self, metric_id: str) -> str:
        return self(METRICS[metric_id].label)
