"""From recorded expert loads to a static layout: which logical expert each physical slot holds, layer by layer.

Usage: python3 fit_expert_layout.py --dump FILE --sha256 HEX --out FILE --ranks N [--redundant R] [--algorithm greedy]

FILE is what the engine's recorder dumped (`.pt`, read with the installation's torch, or `.json`), with `logical_count`
per layer and expert, or per step, layer and expert. Writes the layout that `--init-expert-location` reads, with no
other key (the engine refuses any), and says one JSON object: {"sha256": …, "layers": …, "experts": …, "slots": …,
"tokens": …, "before": 0.61, "after": 0.98}, or {"error": …, "refused": true} where no layout can be fitted. `before`
and `after` are the predicted balancedness (mean load of a rank / highest, mean over layers) of the engine's own
placement and of this one. The same dump gives the same bytes. Python 3.8, standard library; torch for `.pt` only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any


class Refused(Exception):
    """No layout can be fitted from this; the message says why."""


def read_counts(path: pathlib.Path, sha256: str) -> list[list[float]]:
    """Tokens per layer and logical expert, over all recorded steps."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Refused(path.name + " is not the recorded file")
    body = load_torch(path) if path.suffix == ".pt" else json.loads(data)
    counts: Any = body.get("logical_count") if isinstance(body, dict) else None
    return summed(counts.tolist() if hasattr(counts, "tolist") else counts)


def load_torch(path: pathlib.Path) -> Any:
    torch = importlib.import_module("torch")  # of the engine's own installation
    return torch.load(str(path), weights_only=True, map_location="cpu")


def summed(counts: Any) -> list[list[float]]:
    """Two dimensions of numbers, all experts in each layer; a leading one of steps is added up."""
    if not isinstance(counts, list) or not counts or not isinstance(counts[0], list) or not counts[0]:
        raise Refused("the dump holds no logical_count")
    steps = counts if isinstance(counts[0][0], list) else [counts]
    layers, experts = len(steps[0]), len(steps[0][0])
    if any(len(step) != layers or any(len(layer) != experts for layer in step) for step in steps):
        raise Refused("the layers of logical_count differ in length")
    return [[float(sum(step[i][e] for step in steps)) for e in range(experts)] for i in range(layers)]


def trivial(experts: int, slots: int) -> list[int]:
    """The engine's placement without a layout."""
    return [slot % experts for slot in range(slots)]


def replicas_of(loads: Sequence[float], redundant: int) -> list[int]:
    """How many slots each expert gets: each further one goes to the expert with the highest load per slot."""
    replicas = [1] * len(loads)
    for _ in range(redundant):
        heaviest = max(range(len(loads)), key=lambda e: (loads[e] / replicas[e], -e))
        replicas[heaviest] += 1
    return replicas


def fit_layer(loads: Sequence[float], ranks: int, redundant: int) -> list[int]:
    """The heaviest slot first, each on the least loaded rank that has room, rather not beside its own copy."""
    replicas = replicas_of(loads, redundant)
    pieces = sorted(((loads[e] / n, e) for e, n in enumerate(replicas) for _ in range(n)), key=lambda p: (-p[0], p[1]))
    room = (len(loads) + redundant) // ranks
    held: list[list[int]] = [[] for _ in range(ranks)]
    load = [0.0] * ranks
    for weight, expert in pieces:
        free = [rank for rank in range(ranks) if len(held[rank]) < room]
        chosen = min(free, key=lambda rank: (expert in held[rank], load[rank], rank))
        held[chosen].append(expert)
        load[chosen] += weight
    return [expert for rank in held for expert in sorted(rank)]


def balancedness(placement: Sequence[int], loads: Sequence[float], ranks: int) -> float:
    """Mean load of a rank over the highest; copies of an expert share its load."""
    copies = [placement.count(expert) for expert in range(len(loads))]
    room = len(placement) // ranks
    load = [sum(loads[e] / copies[e] for e in placement[r * room : (r + 1) * room]) for r in range(ranks)]
    return sum(load) / len(load) / max(load) if max(load) > 0 else 1.0


def fit(counts: Sequence[Sequence[float]], ranks: int, redundant: int) -> tuple[list[list[int]], float, float]:
    """The placement of every layer, with the predicted balancedness before and after. Layers without experts stay."""
    experts = len(counts[0])
    slots = experts + redundant
    if ranks < 1 or slots % ranks:
        raise Refused(f"{experts} experts + {redundant} redundant = {slots}, not a multiple of {ranks} ranks")
    if not any(map(any, counts)):
        raise Refused("the recorder counted no tokens")
    plain = trivial(experts, slots)
    fitted = [fit_layer(loads, ranks, redundant) if any(loads) else plain for loads in counts]
    used = [(fitted[layer], loads) for layer, loads in enumerate(counts) if any(loads)]
    before = sum(balancedness(plain, loads, ranks) for _, loads in used) / len(used)
    after = sum(balancedness(placement, loads, ranks) for placement, loads in used) / len(used)
    return fitted, before, after


def write_layout(path: pathlib.Path, placements: Sequence[Sequence[int]]) -> str:
    """Whole or not at all; the SHA-256 of what was written."""
    data = json.dumps({"physical_to_logical_map": placements}, separators=(",", ":")).encode()
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    return hashlib.sha256(data).hexdigest()


def answer(words: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", type=pathlib.Path, required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--redundant", type=int, default=0)
    parser.add_argument("--algorithm", choices=["greedy"], default="greedy")
    options = parser.parse_args(words)
    try:
        counts = read_counts(options.dump, options.sha256)
        placements, before, after = fit(counts, options.ranks, options.redundant)
        written = write_layout(options.out, placements)
    except Refused as error:
        return {"error": str(error), "refused": True}
    except Exception as error:  # noqa: BLE001 - torch raises what it likes on a file that is none of its own
        return {"error": f"{type(error).__name__}: {error}", "refused": False}
    return {
        "sha256": written,
        "layers": len(counts),
        "experts": len(counts[0]),
        "slots": len(placements[0]),
        "tokens": round(sum(map(sum, counts))),
        "before": round(before, 4),
        "after": round(after, 4),
    }


if __name__ == "__main__":
    said = answer(sys.argv[1:])
    sys.stdout.write(json.dumps(said) + "\n")
    sys.exit(2 if said.get("refused") else 1 if "error" in said else 0)
