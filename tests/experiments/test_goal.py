"""The goal file: what a good one means, and for each broken one the exact line that its author reads."""

from __future__ import annotations

import time
from pathlib import Path as FilePath

import pytest

from executor.engines.release import Release
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Workload
from experiments.errors import InputError
from experiments.goal import Goal, parse_baseline, parse_goal, starting_config
from experiments.knob import Cost
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.objective import Bound, Constraint, parse_bound
from experiments.quantity import Op
from experiments.serving_config import Kind, Path, Role, ServingConfig
from tests.experiments.goal_text import GOAL, changed

DEMOS = sorted(p.parent for p in (FilePath(__file__).parents[2] / "agent/demo").glob("*/goal.yaml"))
SPACE = GOAL.index("knobs:")


def message_of(text: str | bytes) -> str:
    with pytest.raises(InputError) as refused:
        parse_goal(text, "goal.yaml")
    return str(refused.value)


def broken(id: str, old: str, new: str, message: str) -> object:
    return pytest.param(changed(old, new), message, id=id)


def added(id: str, line: str, message: str) -> object:
    return pytest.param(GOAL + line + "\n", message, id=id)


BROKEN = [
    # keys
    broken("unknown_key", "screening: {", "screenings: {", "12:1: unknown key 'screenings'; did you mean 'screening'?"),
    broken(
        "unknown_nested_key",
        "concurrency: 128",
        "concurency: 128",
        "8:43: unknown key 'concurency' in scenario.load; did you mean 'concurrency'?",
    ),
    broken("unknown_key_like_no_other", "task: copy", "task: copy, colour: red",
           "5:66: unknown key 'colour' in scenario.input; allowed: body_tokens, encoded_tokens, task"),
    broken("missing_key", "budget: {trials: 40, hours: 10}\n", "", "1:1: missing key 'budget'"),
    broken("missing_nested_key", ", hours: 10", "", "13:1: missing key 'hours' in budget"),
    added("duplicate_key", "name: other", "18:1: duplicate key 'name', first given in line 1"),
    broken(
        "duplicate_nested_key",
        "requests: 640,",
        "requests: 640, requests: 320,",
        "8:43: duplicate key 'requests', first given in line 8",
    ),
    broken("no_value", "{state: zero}", "{state: }", "7:11: 'state' has no value; give one or remove the line"),
    # kinds of values
    broken("c_below_1", "concurrency: 128", "concurrency: 0",
           "8:56: scenario.load.concurrency: must be at least 1 (got 0)"),
    broken(
        "c_as_text",
        "concurrency: 128",
        'concurrency: "128"',
        "8:56: scenario.load.concurrency: must be a whole number (got '128')",
    ),
    broken(
        "c_not_whole",
        "concurrency: 128",
        "concurrency: 128.5",
        "8:56: scenario.load.concurrency: must be a whole number (got 128.5)",
    ),
    broken("true_for_number", "trials: 40", "trials: true", "13:18: budget.trials: must be a whole number (got true)"),
    broken("no_model_to_go_without", "hours: 10", "hours: 10, stop_without_model: true",
           "13:53: budget.stop_without_model: there is no model to go without: llm_tokens is 0"),
    broken("nan_hours", "hours: 10", "hours: .nan", "13:29: budget.hours: must be a finite number (got nan)"),
    broken("infinite_hours", "hours: 10", "hours: .inf", "13:29: budget.hours: must be a finite number (got inf)"),
    broken("nan_rate", "rate: 6.0", "rate: .nan", "8:67: scenario.load.rate: must be a finite number (got nan)"),
    broken("negative_rate", "rate: 6.0", "rate: -1", "8:67: scenario.load.rate: must be more than 0 (got -1)"),
    broken(
        "infinite_knob_value",
        "[1, 2, 3]",
        "[1, .inf]",
        "16:61: knobs[0].values[1]: must be a finite number (got inf)",
    ),
    broken("text_for_mapping", "{file: baseline.yaml}", "baseline.yaml",
           "14:11: baseline: must be a mapping with keys file (got 'baseline.yaml')"),
    broken("text_for_list", "[ttft_mean]", "ttft_mean", "11:9: report: must be a list (got 'ttft_mean')"),
    broken("name_not_a_slug", "name: flash-16k", "name: Flash 16K",
           "1:7: name: a name has lower-case letters, digits and single dashes, at most 63 of them"),
    added("word_for_switch", 'quality: {command: [a], required: "yes"}',
          "18:35: quality.required: must be true or false (got 'yes')"),
    added("no_command", "quality: {command: [], required: true}",
          "18:20: quality.command: has too few items; at least 1"),
    added("unknown_native_rule", "native_rule: aisbench-2026-8",
          "18:14: native_rule: must be 'aisbench-2026-08' or 'aisbench-2025-12' (got 'aisbench-2026-8'); "
          "did you mean 'aisbench-2026-08'?"),
    broken("model_on_two_lines", "DeepSeek-V4-Flash-W8A8", '"a\\nb"',
           "3:10: scenario.model: must be printable text on one line"),
    broken("value_on_two_lines", "[1, 2, 3]", '["a\\nb"]',
           "16:57: knobs[0].values: must be printable text on one line"),
    # metrics, units and limits
    broken("wrong_unit", "< 20 ms", "< 20 kg",
           "10:15: constraints[0]: unit 'kg' does not fit here; allowed: ms, s or us"),
    broken("no_unit", "< 20 ms", "< 20", "10:15: constraints[0]: '20' needs a unit: ms, s or us"),
    broken("tpot_as_text", "< 20 ms", "< fast",
           "10:15: constraints[0]: 'fast' is not a number with a unit, such as '20 ms'"),
    broken("tpot_as_mapping", "[tpot_mean < 20 ms", "[{tpot_mean: 20}",
           "10:15: constraints[0]: a constraint is written as in 'tpot_mean < 20 ms'"),
    broken("no_limit", "tpot_mean < 20 ms", "tpot_mean",
           "10:15: constraints[0]: a constraint is written as in 'tpot_mean < 20 ms'"),
    broken("unknown_comparison", "< 20 ms", "=< 20 ms",
           "10:15: constraints[0]: a limit starts with one of < <= > >= ==; '=<' is not one of them, as in '< 20 ms'"),
    broken("negative_limit", "< 20 ms", "< -20 ms",
           "10:15: constraints[0]: tpot_mean is never below 0, so a limit of -20 ms says nothing"),
    broken("impossible_limit", "failed_requests == 0", "failed_requests < 0",
           "10:34: constraints[1]: failed_requests is never below 0; write '<= 0' or '== 0'"),
    broken("exact_latency", "< 20 ms", "== 20 ms",
           "10:15: constraints[0]: tpot_mean is measured, so '==' would never hold; use < <= > or >="),
    broken("limit_on_the_good_side", "< 20 ms", "> 20 ms",
           "10:15: constraints[0]: 'tpot_mean > 20 ms' forbids the good side: tpot_mean is better when lower"),
    broken("limited_twice", "< 20 ms", "< 20 ms, tpot_mean <= 30 ms",
           "10:34: constraints[1]: constraints[0] already limits tpot_mean"),
    broken("unknown_metric", "tpot_mean <", "tpot_average <",
           "10:15: constraints[0]: unknown metric 'tpot_average'; did you mean 'tpot_mean'?"),
    broken("unknown_report_metric", "[ttft_mean]", "[e2e_mean, ttft]",
           "11:20: report[1]: unknown metric 'ttft'; did you mean 'ttft_mean'?"),
    broken("unknown_objective", "metric: output_tok_s_per_card", "metric: output",
           "9:21: objective.metric: unknown metric 'output'; did you mean 'output_tok_s_per_card'?"),
    broken("objective_without_side", "metric: output_tok_s_per_card", "metric: concurrency_mean",
           "9:21: objective.metric: concurrency_mean is no objective: it is a figure to report or to constrain"),
    broken("direction_against_metric", "direction: maximize", "direction: minimize",
           "9:71: objective.direction: output_tok_s_per_card is better when higher; write maximize"),
    broken("target_on_the_wrong_side", '"> 230"', '"< 230"',
           "9:89: objective.target: a target to maximize starts with > or >=, not <"),
    broken("target_in_the_wrong_unit", '"> 230"', '"> 230 ms"',
           "9:89: objective.target: unit 'ms' does not fit here; allowed: tok/s/card or tokens/s/card"),
    broken("target_without_comparison", '"> 230"', "230",
           "9:89: objective.target: a limit starts with one of < <= > >= ==, as in '< 230'"),
    # rules across fields
    broken("screening_above_load", "{requests: 320}", "{requests: 6400}",
           "12:23: screening.requests: 6400 is more than the 640 of scenario.load.requests"),
    broken("c_above_n", "concurrency: 128", "concurrency: 1280",
           "8:56: scenario.load.concurrency: 1280 can never be in flight with 640 requests"),
    added("load_below_floor", "window_floor: {requests: 1000}",
          "8:38: scenario.load.requests: 640 is less than window_floor.requests 1000: no window could count"),
    broken("native_window_without_start_times", "client: aisbench", "client: bench_serving",
           "9:52: objective.window: bench_serving records no start times, so there is no native window; "
           "write whole, or use the client aisbench"),
    broken("warm_without_share", "{state: zero}", "{state: warm}",
           "7:18: scenario.cache.state: a warm cache needs per_request_min, the share each request must reach, "
           "e.g. 0.90"),
    broken("warm_without_seed", "{state: zero}", "{state: warm, per_request_min: 0.9}",
           "7:18: scenario.cache.state: a warm cache needs seed_requests: the requests that fill it"),
    broken("zero_with_share", "{state: zero}", "{state: zero, per_request_min: 0.9}",
           "7:41: scenario.cache.per_request_min: has no meaning with state: zero; remove it, or write state: warm"),
    broken("prefix_below_share", "{state: zero}",
           "{state: warm, per_request_min: 0.9, seed_requests: 1, prefix_tokens: 14740}",
           "7:79: scenario.cache.prefix_tokens: 14740 of 16388 tokens is 89.9439%, below per_request_min 90.0000%"),
    broken("encoded_below_body", "encoded_tokens: 16388", "encoded_tokens: 16000",
           "5:47: scenario.input.encoded_tokens: 16000 is less than body_tokens 16384; "
           "the chat template only adds tokens"),
    added("pairs_reversed", "confirmation: {pairs_min: 4, pairs_max: 2}",
          "18:41: confirmation.pairs_max: 2 is less than pairs_min 4"),
    # the search space
    pytest.param(GOAL[:SPACE] + "knobs: []\n", "15:8: knobs: has too few items; at least 1", id="empty_space"),
    pytest.param(GOAL[:SPACE] + "knobs:\n", "15:1: 'knobs' has no value; give one or remove the line", id="blank"),
    pytest.param(GOAL[:SPACE], "1:1: missing key 'knobs'", id="no_space"),
    broken("values_of_mixed_kinds", "[1, 2, 3]", "[1, two]",
           "16:57: knobs[0].values: values of different kinds: 1 is a number, 'two' is text"),
    broken("number_and_switch", "[1, 2, 3]", "[1, true]",
           "16:57: knobs[0].values: values of different kinds: 1 is a number, true is true or false"),
    broken("value_twice", "[1, 2, 3]", "[1, 2, 1]", "16:57: knobs[0].values: value 1 is listed twice"),
    broken("list_as_value", "[1, 2, 3]", "[1, [2]]",
           "16:61: knobs[0].values[1]: must be true or false, a number or text in quotes (got a list)"),
    added("duplicate_knob", "  - {role: both, flag: prefill-max-requests, values: [1, 2], cost: restart}",
          "18:5: knobs[2]: prefill.flag.prefill-max-requests is already turned by knobs[0]"),
    broken("two_kinds_of_knob", "flag: prefill-max-requests", "flag: a, env: B",
           "16:35: knobs[0].env: a knob has exactly one of flag, env, param, layout, build; "
           "this one has flag and env"),
    broken("no_kind_of_knob", "flag: prefill-max-requests, ", "",
           "16:5: knobs[0]: a knob has exactly one of flag, env, param, layout, build; this one has none"),
    broken("flag_with_dashes", "flag: prefill-max-requests", "flag: --prefill_max_requests",
           "16:27: knobs[0].flag: '--prefill_max_requests' is not the name of a flag; write 'prefill-max-requests'"),
    broken("values_and_range", "values: [1, 2, 3]", "values: [1], range: [1, 2]",
           "16:5: knobs[0]: a knob has either values or a range"),
    broken("range_reversed", "[32, 160]", "[160, 32]",
           "17:47: knobs[1].range: the low end 160 is not below the high end 32"),
    broken("range_of_three", "[32, 160]", "[32, 160, 5]", "17:47: knobs[1].range: has too many items; at most 2"),
    broken("range_of_text", "[32, 160]", "[32, many]", "17:52: knobs[1].range[1]: must be a number (got 'many')"),
    broken("c_range_from_0", "[32, 160]", "[0, 160]",
           "17:47: knobs[1].range: a concurrency is a whole number of at least 1, not 0"),
    broken("c_range_above_screening", "[32, 160]", "[32, 640]",
           "17:47: knobs[1].range: 640 can never be in flight with the 320 requests of screening"),
    broken("c_unset", "range: [32, 160]", "values: [null]",
           "17:48: knobs[1].values: a concurrency is a whole number of at least 1, not nothing"),
    broken("default_of_another_kind", "[1, 2, 3],", "[1, 2, 3], default: all,",
           "16:77: knobs[0].default: is text ('all'), the values are like 1"),
    broken("n_as_knob", "param: concurrency", "param: requests",
           "17:27: knobs[1].param: the client has the knobs concurrency and rate; N belongs to the tier"),
    broken("param_of_a_server", "role: client", "role: decode",
           "17:12: knobs[1].role: param goes with role: client, and only with it"),
    broken("unknown_cost", "cost: hot", "cost: warm",
           "17:64: knobs[1].cost: must be 'hot', 'restart' or 'rebuild' (got 'warm')"),
    broken("unknown_role", "role: prefill", "role: prefil",
           "16:12: knobs[0].role: must be 'prefill', 'decode', 'both', 'mixed', 'router' or 'client' "
           "(got 'prefil'); did you mean 'prefill'?"),
    broken("role_of_another_deployment", "role: prefill", "role: mixed",
           "16:12: knobs[0].role: deployment: pd has no role mixed"),
    broken("depends_on_no_setting", "[1, 2, 3],", "[1, 2, 3], depends_on: [steps],",
           "16:81: knobs[0].depends_on[0]: 'steps' is not a setting, such as 'decode.flag.speculative-num-steps'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_goal_names_its_place_and_its_cure(text: str, message: str) -> None:
    """Each broken goal is refused with one exact `file:line:col: message`."""
    assert message_of(text) == f"goal.yaml:{message}"


def test_several_errors_are_counted() -> None:
    """The first error by place is shown, the others are counted."""
    text = changed("concurrency: 128", "concurrency: 0", changed("trials: 40", "trials: 0"))
    assert message_of(text) == (
        "goal.yaml:8:56: scenario.load.concurrency: must be at least 1 (got 0) (and 1 more error)"
    )


def test_large_goal_is_refused_within_a_second() -> None:
    """A goal at the limit of what is read is refused quickly, whatever it is made of."""
    body = "".join(f"  - {{role: prefill, flag: a{i}, values: [1, 2], cost: hot}}\n" for i in range(2000))
    before = time.process_time()
    assert "more than 10,000 values" in message_of(GOAL[:SPACE] + "knobs:\n" + body)
    assert time.process_time() - before < 1


def test_good_goal_is_read_whole() -> None:
    """Every part of the goal arrives in canonical units and types."""
    goal = parse_goal(GOAL, "goal.yaml")
    assert goal.objective.target == Bound(op=Op.MORE, limit=230.0)
    assert goal.constraints[0] == Constraint(metric="tpot_mean", bound=Bound(op=Op.LESS, limit=20.0))
    assert [str(c) for c in goal.constraints] == ["tpot_mean < 20 ms", "failed_requests == 0"]
    assert goal.screening.window is WindowKind.WHOLE
    assert (goal.confirmation.pairs_min, goal.confirmation.pairs_max, goal.noise.repeats) == (2, 28, 3)
    assert goal.window_floor.requests == 128
    assert goal.space.knob(Path(Role.PREFILL, Kind.FLAG, "prefill-max-requests")) == goal.knobs[0]
    assert goal.knobs[1].cost is Cost.HOT


def test_limits_are_read_in_any_fitting_unit() -> None:
    """A limit of 0.02 s is the limit of 20 ms, exactly."""
    text = changed("< 20 ms", "< 0.02 s")
    assert parse_goal(text, "goal.yaml").constraints == parse_goal(GOAL, "goal.yaml").constraints


def test_unlimited_rate_is_none_and_no_setting() -> None:
    """`.inf` is accepted for the rate alone; it is held as None and leaves the client's rate unset."""
    goal = parse_goal(changed("rate: 6.0", "rate: .inf"), "goal.yaml")
    config = starting_config(goal, pd_baseline())
    assert goal.scenario.load.rate is None
    assert config.of(Role.CLIENT, Kind.CLIENT) == {"concurrency": 128}


def test_goal_survives_its_own_json() -> None:
    """A stored goal reads back as the same goal."""
    goal = parse_goal(changed("rate: 6.0", "rate: .inf"), "goal.yaml")
    assert Goal.model_validate_json(goal.model_dump_json()) == goal
    assert Goal.model_validate(goal.model_dump(mode="json")) == goal


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("<", 19.99, True),
        ("<", 20.0, False),
        ("<=", 20.0, True),
        (">", 20.0, False),
        (">=", 20.0, True),
        (">", 20.01, True),
        ("<", None, None),
        ("<", float("nan"), None),
    ],
)
def test_bound_is_strict_and_unknown_is_never_true(op: str, value: float | None, expected: bool | None) -> None:
    """`<` excludes the limit itself; a value that was not observed keeps no limit and breaks none."""
    side = METRICS["tpot_mean" if op.startswith("<") else "request_per_s"]
    unit = " ms" if op.startswith("<") else ""
    assert parse_bound(f"{op} 20{unit}", side).holds(value) is expected


def test_exact_bound_is_for_counts() -> None:
    """`== 0` holds for no failed request and for nothing else."""
    bound = parse_bound("== 0", METRICS["failed_requests"])
    assert [bound.holds(v) for v in (0.0, 1.0, None)] == [True, False, None]


# --- baseline -------------------------------------------------------------------------------------------------

BASELINE = """\
prefill:
  flags: {tp-size: 16, mem-fraction-static: 1, enable-dp-attention: true}
  env: {HCCL_BUFFSIZE: 3500}
decode:
  flags: {tp-size: 16, cuda-graph-bs: [2, 4, 8]}
build: {source: abc1234}
"""


def pd_baseline() -> ServingConfig:
    return parse_baseline(BASELINE, "baseline.yaml")


def test_baseline_becomes_settings_by_path() -> None:
    """Each setting is stored under its role and kind; a list is the text of a flag with several values."""
    assert pd_baseline().settings == {
        "prefill.flag.tp-size": 16,
        "prefill.flag.mem-fraction-static": 1,
        "prefill.flag.enable-dp-attention": True,
        "prefill.env.HCCL_BUFFSIZE": 3500,
        "prefill.build.source": "abc1234",
        "decode.flag.tp-size": 16,
        "decode.flag.cuda-graph-bs": "2 4 8",
        "decode.build.source": "abc1234",
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("HCCL_BUFFSIZE", "HF_TOKEN",
         "3:9: prefill.env.HF_TOKEN: looks like a secret; set it on the host, these values are shown"),
        ("3500", "tcp://10.0.0.1:24670",
         "3:24: prefill.env.HCCL_BUFFSIZE: holds an address; put it into the env of the host in pool.yaml"),
        ("3500", "10.0.0.1",
         "3:24: prefill.env.HCCL_BUFFSIZE: holds an address; put it into the env of the host in pool.yaml"),
        ("3500", '"a\\nb"', "3:24: prefill.env.HCCL_BUFFSIZE: must be printable text on one line"),
        ("3500", "true",
         "3:24: prefill.env.HCCL_BUFFSIZE: a variable is text or a number; write 1, or quote the word"),
        ("mem-fraction-static", "mem_fraction_static",
         "2:24: prefill.flags.mem_fraction_static: 'mem_fraction_static' is not the name of a flag; "
         "write 'mem-fraction-static'"),
        ("mem-fraction-static", "port",
         "2:24: prefill.flags.port: is set from pool.yaml and the scenario; remove it here"),
        ("mem-fraction-static: 1", "mem-fraction-static: {a: 1}",
         "2:45: prefill.flags.mem-fraction-static: must be true or false, a number or text in quotes "
         "(got a mapping)"),
        ("decode:", "client:", "4:1: unknown key 'client'; allowed: prefill, decode, mixed, router, build"),
        ("source: abc1234", "source: 1234567", "6:17: build.source: must be text in quotes (got 1234567)"),
    ],
)  # fmt: skip
def test_broken_baseline_names_its_place(old: str, new: str, message: str) -> None:
    """Secrets, addresses and settings of the pool are refused in a file whose values are shown."""
    with pytest.raises(InputError) as refused:
        parse_baseline(changed(old, new, BASELINE), "baseline.yaml")
    assert str(refused.value) == f"baseline.yaml:{message}"


def test_name_with_tokens_in_it_is_no_secret() -> None:
    """SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK is a size, not a credential."""
    name = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    config = parse_baseline(changed("HCCL_BUFFSIZE", name, BASELINE), "baseline.yaml")
    assert config.get(Path(Role.PREFILL, Kind.ENV, name)) == 3500


def test_starting_config_adds_the_client_and_not_n() -> None:
    """C and r of the load are settings of the client; N is not."""
    config = starting_config(parse_goal(GOAL, "goal.yaml"), pd_baseline())
    assert config.of(Role.CLIENT, Kind.CLIENT) == {"concurrency": 128, "rate": 6.0}


def test_whole_number_is_made_real_where_the_knob_is() -> None:
    """A baseline value of 1 under a knob with 0.8 and 0.9 starts as 1.0, so that 1 → 1.0 is no change."""
    knob = "  - {role: prefill, flag: mem-fraction-static, values: [0.8, 0.9], cost: restart}\n"
    config = starting_config(parse_goal(GOAL + knob, "goal.yaml"), pd_baseline())
    value = config.get(Path(Role.PREFILL, Kind.FLAG, "mem-fraction-static"))
    assert (type(value), value) == (float, 1.0)


def test_baseline_of_another_kind_than_the_knob_is_refused() -> None:
    """A text in the baseline cannot be the start of a knob with numbers."""
    baseline = parse_baseline(changed("mem-fraction-static: 1", 'prefill-max-requests: "1"', BASELINE), "baseline.yaml")
    with pytest.raises(InputError) as refused:
        starting_config(parse_goal(GOAL, "goal.yaml"), baseline)
    assert str(refused.value) == (
        "baseline.yaml: prefill.flag.prefill-max-requests is text here ('1'), its knob has a number"
    )


def test_baseline_of_another_deployment_is_refused() -> None:
    """A goal that deploys prefill and decode needs settings of both."""
    baseline = parse_baseline("mixed:\n  flags: {tp-size: 32}\n", "baseline.yaml")
    with pytest.raises(InputError) as refused:
        starting_config(parse_goal(GOAL, "goal.yaml"), baseline)
    assert str(refused.value) == (
        "baseline.yaml: deployment: pd needs settings of decode and prefill; this file has those of mixed"
    )


# --- the shipped goals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("demo", DEMOS, ids=lambda path: path.name)
def test_shipped_goal_starts_from_a_value_of_each_knob(demo: FilePath) -> None:
    """Each shipped goal reads, and its baseline holds an allowed value of every knob that has more to offer."""
    goal = parse_goal((demo / "goal.yaml").read_bytes(), "goal.yaml")
    config = starting_config(goal, parse_baseline((demo / goal.baseline.file).read_bytes(), "baseline.yaml"))
    outside = [k for k in goal.knobs if k.current(config) is not None and not k.contains(k.current(config))]
    assert outside == []


@pytest.mark.parametrize("demo", DEMOS, ids=lambda path: path.name)
def test_shipped_baseline_keeps_the_engine_rules(demo: FilePath) -> None:
    """No shipped baseline breaks a size rule of the engine."""
    goal = parse_goal((demo / "goal.yaml").read_bytes(), "goal.yaml")
    config = starting_config(goal, parse_baseline((demo / goal.baseline.file).read_bytes(), "baseline.yaml"))
    tokens = goal.scenario.input.encoded_tokens
    load = Workload(prompt_tokens=tokens, output_tokens=goal.scenario.output_tokens)
    assert check_sizes(config, Release(0, 5, 12, 0), load) == ()


def test_three_goals_are_shipped() -> None:
    """The three scenarios of the field record are shipped."""
    assert [demo.name for demo in DEMOS] == ["128k-90-cache", "16k-zero-cache", "dp8-mixed-32k"]
