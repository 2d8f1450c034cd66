"""Does a running server serve what the card says? Holds `/server_info` against the settings of one role.

Only what the configuration sets is compared. What a server is known to change by itself is listed with its
rule and expected; any other difference is a mismatch. Unknown fields are never fatal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from executor.engines import server_info
from executor.engines.flags import LIST_FLAGS
from executor.engines.role_settings import RoleSettings, as_number
from experiments.serving_config import Kind, Role, ServingConfig, Value

ABSENT = "absent"
_MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One setting that the server does not report as configured."""

    name: str
    wanted: str
    reported: str

    def __str__(self) -> str:
        return f"{self.name}: wanted {self.wanted}, server reports {self.reported}"


@dataclass(frozen=True, kw_only=True)
class AutoAdjustment:
    """One setting that the server changed by a rule that is known and expected."""

    name: str
    wanted: str
    reported: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """What a server reports about itself, held against one role of a configuration."""

    mismatches: tuple[Mismatch, ...]
    adjusted: tuple[AutoAdjustment, ...]
    unverified: tuple[str, ...]  # set, and not reported by this server at all
    version: str | None
    identity: str | None  # of this running process: changes with every restart
    simulated: bool

    @property
    def matches(self) -> bool:
        return not self.mismatches


def attest(body: Mapping[str, object], config: ServingConfig, role: Role, *, version: str | None = None) -> Attestation:
    """Hold a decoded `/server_info` (or the printed arguments) against the settings of `role`.

    `version` is what the card's build must report; None accepts any.
    """
    view = RoleSettings.of(config, role)
    mismatches: list[Mismatch] = []
    adjusted: list[AutoAdjustment] = []
    unverified: list[str] = []
    for name, wanted in view.flags.items():
        if wanted is None or wanted is False:
            continue
        reported = _reported(body, name)
        if reported is _MISSING:
            unverified.append(name)
        elif not _is_same(name, wanted, reported):
            _file_difference(view, name, wanted, reported, mismatches, adjusted)
    return Attestation(
        mismatches=(
            *_role_mismatch(body, role),
            *_version_mismatch(body, version),
            *_recorder_mismatch(body, view),
            *mismatches,
            *_environment(body, config, role),
        ),
        adjusted=tuple(adjusted),
        unverified=tuple(unverified),
        version=_text(body.get("version")),
        identity=server_info.identity(body),
        simulated=body.get("simulated") is True,
    )


def _file_difference(
    view: RoleSettings,
    name: str,
    wanted: Value,
    reported: object,
    mismatches: list[Mismatch],
    adjusted: list[AutoAdjustment],
) -> None:
    rule = next((rule for rule, is_known in _KNOWN if is_known(view, name, reported)), None)
    if rule is None:
        mismatches.append(Mismatch(name=name, wanted=_shown(wanted), reported=_shown(reported)))
    else:
        adjusted.append(AutoAdjustment(name=name, wanted=_shown(wanted), reported=_shown(reported), rule=rule))


def _role_mismatch(body: Mapping[str, object], role: Role) -> tuple[Mismatch, ...]:
    wanted = role.value if role in (Role.PREFILL, Role.DECODE) else "null"
    reported = body.get("disaggregation_mode", _MISSING)
    if reported is _MISSING or _shown(reported) == wanted:
        return ()
    return (Mismatch(name="disaggregation-mode", wanted=wanted, reported=_shown(reported)),)


def _recorder_mismatch(body: Mapping[str, object], view: RoleSettings) -> tuple[Mismatch, ...]:
    """A recorder of expert loads that nobody configured costs time in every step."""
    name = "expert-distribution-recorder-mode"
    reported = body.get(name.replace("-", "_"))
    if not reported or view.flags.get(name) is not None:
        return ()
    return (Mismatch(name=name, wanted=ABSENT, reported=_shown(reported)),)


def _version_mismatch(body: Mapping[str, object], wanted: str | None) -> tuple[Mismatch, ...]:
    reported = body.get("version")
    if wanted is None or reported == wanted:
        return ()
    return (Mismatch(name="version", wanted=wanted, reported=_shown(reported)),)


def _environment(body: Mapping[str, object], config: ServingConfig, role: Role) -> tuple[Mismatch, ...]:
    """Environment is reported only by servers that were told to expose it; silence is no mismatch."""
    exposed = body.get("env_vars")
    if not isinstance(exposed, Mapping):
        return ()
    return tuple(
        Mismatch(name=name, wanted=_env_text(wanted), reported=_shown(exposed.get(name, ABSENT)))
        for name, wanted in config.of(role, Kind.ENV).items()
        if wanted is not None and str(exposed.get(name)) != _env_text(wanted)
    )


def _env_text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _reported(body: Mapping[str, object], name: str) -> object:
    """The value of a flag under the key it has in this release."""
    key = name.replace("-", "_")
    if key in body and body[key] is not None:
        return body[key]
    if name in _MOVED:
        moved = _nested(body, _MOVED[name])
        if moved is not _MISSING:
            return moved
    return body.get(key, _MISSING)


def _nested(body: Mapping[str, object], path: tuple[str, ...]) -> object:
    value: object = body
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


# From 0.5.15 on the graph settings sit in one nested document; older names may still be written on a card.
_MOVED: dict[str, tuple[str, ...]] = {
    "cuda-graph-bs": ("cuda_graph_config", "decode", "bs"),
    "cuda-graph-bs-decode": ("cuda_graph_config", "decode", "bs"),
    "cuda-graph-max-bs": ("cuda_graph_config", "decode", "max_bs"),
    "cuda-graph-max-bs-decode": ("cuda_graph_config", "decode", "max_bs"),
    "cuda-graph-bs-prefill": ("cuda_graph_config", "prefill", "bs"),
    "cuda-graph-max-bs-prefill": ("cuda_graph_config", "prefill", "max_bs"),
    "cuda-graph-backend-decode": ("cuda_graph_config", "decode", "backend"),
    "cuda-graph-backend-prefill": ("cuda_graph_config", "prefill", "backend"),
    "dp-size": ("attn_dp_size",),
    "attn-dp-size": ("dp_size",),
}


def _is_same(name: str, wanted: Value, reported: object) -> bool:
    if wanted is True or isinstance(reported, bool):
        return wanted is reported
    if isinstance(reported, list | tuple):
        return str(wanted).split() == [_shown(entry) for entry in reported]
    if name in LIST_FLAGS:
        return str(wanted).split() == str(reported).split()
    number, other = as_number(wanted), reported
    if number is not None and isinstance(other, int | float):
        return number == float(other)
    return _shown(wanted) == _shown(reported)


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case list() | tuple():
            return " ".join(_shown(entry) for entry in value)
        case _:
            return str(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_divided_chunk(view: RoleSettings, name: str, reported: object) -> bool:
    asked = view.integer("chunked-prefill-size")
    if name != "chunked-prefill-size" or asked is None or not view.has_dp_attention:
        return False
    return reported == asked // view.dp


def _is_forced_expert_parallel(view: RoleSettings, name: str, reported: object) -> bool:
    backend = view.text("moe-a2a-backend")
    return name == "ep-size" and backend not in {None, "none"} and reported == view.tp


def _is_forced_draft(view: RoleSettings, name: str, reported: object) -> bool:
    steps = view.integer("speculative-num-steps")
    return (
        name == "speculative-num-draft-tokens"
        and view.integer("speculative-eagle-topk") == 1
        and steps is not None
        and reported == steps + 1
    )


def _is_synonym(view: RoleSettings, name: str, reported: object) -> bool:
    return (name, _shown(view.flags.get(name)), _shown(reported)) in _SYNONYMS


def _is_resolved_auto(view: RoleSettings, name: str, reported: object) -> bool:
    return view.flags.get(name) == "auto" and reported not in (None, "auto")


def _is_scaled_conservativeness(view: RoleSettings, name: str, reported: object) -> bool:
    wanted = view.number("schedule-conservativeness")
    if name != "schedule-conservativeness" or wanted is None or not isinstance(reported, int | float):
        return False
    return view.has_dp_attention and abs(float(reported) - 0.3 * wanted) < 1e-9


def _is_graph_off(view: RoleSettings, name: str, reported: object) -> bool:
    """Deepep in normal mode runs without graphs, whatever was asked."""
    return name.startswith("cuda-graph-") and view.text("deepep-mode") == "normal"


def _is_dp_attention_by_size(view: RoleSettings, name: str, reported: object) -> bool:
    return name == "enable-dp-attention" and view.dp == 1 and reported is False


def _is_ignored_balance(view: RoleSettings, name: str, reported: object) -> bool:
    return name == "prefill-round-robin-balance" and reported in (None, False)


_SYNONYMS = frozenset(
    {
        ("speculative-algorithm", "NEXTN", "EAGLE"),
        ("disaggregation-transfer-backend", "mooncake_tcp", "mooncake"),
    }
)
_KNOWN: tuple[tuple[str, Callable[[RoleSettings, str, object], bool]], ...] = (
    ("DP attention divides chunked-prefill-size by dp-size", _is_divided_chunk),
    ("the expert exchange sets ep-size to tp-size", _is_forced_expert_parallel),
    ("eagle-topk 1 sets num-draft-tokens to num-steps + 1", _is_forced_draft),
    ("another name of the same", _is_synonym),
    ("auto was resolved", _is_resolved_auto),
    ("DP attention scales schedule-conservativeness by 0.3", _is_scaled_conservativeness),
    ("deepep-mode normal turns graphs off", _is_graph_off),
    ("dp-size 1 turns DP attention off", _is_dp_attention_by_size),
    ("prefill-round-robin-balance is ignored since 0.5.8", _is_ignored_balance),
)
