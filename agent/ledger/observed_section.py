"""What the servers of a trial were seen to do beside its numbers: sampled queues, and a profile's conclusions."""

from __future__ import annotations

from itertools import groupby
from statistics import median_low

from agent.ledger.document import Block, Paragraph, Table
from agent.ledger.figures import MISSING, count_figure, figure
from agent.ledger.words import Words
from experiments.live import RankLive, Spread
from experiments.trial import TrialRecord


def observed_blocks(record: TrialRecord, t: Words) -> list[Block]:
    """Nothing for a trial that was too short to be sampled and was not profiled."""
    blocks: list[Block] = []
    if record.live:
        blocks.append(_live_table(record, t))
        blocks.append(Paragraph(t("Sampled while the load ran: median over ranks and samples, highest in brackets.")))
    if record.profiles:
        said = "; ".join(map(str, record.profiles))
        blocks.append(Paragraph(t("A short profile after the load, conclusions only: {profiles}.", profiles=said)))
    return blocks


def _live_table(record: TrialRecord, t: Words) -> Table:
    header = (
        t("server"),
        t("ranks"),
        t("samples"),
        t("running"),
        t("waiting"),
        t("KV pool in use"),
        t("accept length"),
    )
    by_role = groupby(record.live, key=lambda rank: rank.role)
    return Table(header, tuple(_row(str(role), list(ranks)) for role, ranks in by_role))


def _row(role: str, ranks: list[RankLive]) -> tuple[str, ...]:
    spreads = (
        [rank.running for rank in ranks],
        [rank.waiting for rank in ranks],
        [rank.token_usage for rank in ranks],
        [rank.accept_length for rank in ranks],
    )
    samples = max(rank.samples for rank in ranks)
    return (role, count_figure(len(ranks)), count_figure(samples), *map(_over_ranks, spreads))


def _over_ranks(spreads: list[Spread]) -> str:
    medians = [spread.p50 for spread in spreads if spread.p50 is not None]
    highest = [spread.max for spread in spreads if spread.max is not None]
    if not medians or not highest:
        return MISSING
    return f"{figure(median_low(medians))} ({figure(max(highest))})"
