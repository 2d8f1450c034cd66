"""The pool file: machines, cards and ports, and refusals that name their place."""

from __future__ import annotations

import pytest

from executor.pool import Pool, check_fit, parse_pool
from experiments.errors import InputError
from experiments.goal import parse_goal
from experiments.serving_config import Role
from experiments.trial import Stage
from tests.experiments.goal_text import GOAL, changed

POOL = """\
name: a3-pool-1
cards: {prefill: 8, decode: 8}
hosts:
  p0: {role: prefill, ssh: p0, container: sglang}
  d0: {role: decode, ssh: d0, container: sglang}
router: {on: p0}
client: {on: p0, model_path: /data/model}
workdir: /data/tuneloop
"""


def pool(old: str = "name", new: str = "name") -> Pool:
    return parse_pool(changed(old, new, POOL), "pool.yaml")


def test_per_card_divides_by_both_sides() -> None:
    """P8+D8 has 16 cards."""
    assert (pool().cards.total, pool().cards.deployment) == (16, "pd")


def test_mixed_pool_has_its_own_cards() -> None:
    """A pool without separation counts its mixed cards."""
    text = """\
name: dp8
cards: {mixed: 16}
hosts:
  n0: {role: mixed, ssh: n0}
router: {on: n0}
client: {on: n0, model_path: /data/model}
workdir: /data/tuneloop/
"""
    found = parse_pool(text, "pool.yaml")
    assert (found.cards.total, found.cards.deployment, list(found.hosts_of(Role.MIXED))) == (16, "mixed", ["n0"])
    assert found.workdir == "/data/tuneloop"


def test_defaults_are_those_of_the_engine() -> None:
    """Ports, programs and time limits have defaults; a pool is real unless it says simulated."""
    found = pool()
    assert (found.hosts["p0"].port, found.hosts["p0"].bootstrap_port, found.router.port) == (30000, 8998, 30100)
    assert found.programs.server == ("python3", "-m", "sglang.launch_server")
    assert [found.timeouts.of(stage) > 0 for stage in Stage] == [True] * len(Stage)
    assert found.simulated is False


def test_environment_may_hold_addresses_and_numbers() -> None:
    """What belongs to a place stands in the pool file, which is never shown."""
    found = pool("ssh: d0,", "ssh: d0, env: {ASCEND_MF_STORE_URL: 'tcp://10.0.0.1:24670', HCCL_BUFFSIZE: 800},")
    assert found.hosts["d0"].env == {"ASCEND_MF_STORE_URL": "tcp://10.0.0.1:24670", "HCCL_BUFFSIZE": "800"}


def test_pool_survives_its_own_json() -> None:
    """A stored pool reads back as the same pool."""
    assert Pool.model_validate_json(pool().model_dump_json()) == pool()


BROKEN = {
    "half_a_pool": ("decode: 8}", "decode: 0}", "2:8: cards: a pool has prefill and decode cards, or mixed cards"),
    "both_kinds": ("decode: 8}", "decode: 8, mixed: 3}",
                   "2:39: cards.mixed: a pool is either prefill and decode, or mixed"),
    "negative_cards": ("decode: 8}", "decode: -8}", "2:29: cards.decode: must be at least 0 (got -8)"),
    "role_both": ("role: decode", "role: both",
                  "5:14: hosts.d0.role: a host is prefill or decode; a machine that is both has two entries"),
    "no_decode_host": ("role: decode", "role: prefill",
                       "4:3: hosts: cards has 8 for decode, but no host has role: decode"),
    "second_prefill_host": ("  d0:", "  p1: {role: prefill, ssh: p1}\n  d0:",
                            "5:14: hosts.p1.role: p0 is the prefill host already: each side is one server on one host"),
    "option_as_host": ("ssh: p0", "ssh: -oProxyCommand=x",
                       "4:28: hosts.p0.ssh: '-oProxyCommand=x' is not a host name of an ssh configuration"),
    "shell_as_container": ("p0, container: sglang", 'p0, container: "a; b"',
                           "4:43: hosts.p0.container: 'a; b' is not a name of a container"),
    "shell_as_address": ("ssh: p0", "ssh: p0, address: $(x)",
                         "4:41: hosts.p0.address: '$(x)' is not a host name or an address"),
    "host_name": ("  d0:", "  D 0:",
                  "5:3: hosts.D 0: a host is named with lower-case letters, digits and dashes"),
    "router_nowhere": ("router: {on: p0}", "router: {on: p9}",
                       "6:14: router.on: 'p9' is not one of the hosts: p0, d0"),
    "client_nowhere": ("client: {on: p0", "client: {on: x", "7:14: client.on: 'x' is not one of the hosts: p0, d0"),
    "relative_workdir": ("/data/tuneloop", "data",
                         "8:10: workdir: 'data' is not an absolute path below / without '..'"),
    "climbing_workdir": ("/data/tuneloop", "/data/../etc",
                         "8:10: workdir: '/data/../etc' is not an absolute path below / without '..'"),
    "root_as_workdir": ("/data/tuneloop", "/", "8:10: workdir: '/' is not an absolute path below / without '..'"),
    "router_on_taken_port": ("router: {on: p0}", "router: {on: p0, port: 30000}",
                             "6:24: router.port: port 30000 on p0 is already that of hosts.p0"),
    "router_on_bootstrap_port": ("router: {on: p0}", "router: {on: p0, port: 8998}",
                                 "6:24: router.port: port 8998 on p0 is already that of hosts.p0"),
    "two_servers_on_one_port": ("ssh: d0", "ssh: p0", "5:7: hosts.d0: port 30000 on p0 is already that of hosts.p0"),
    "no_such_port": ("router: {on: p0}", "router: {on: p0, port: 70000}",
                     "6:24: router.port: must be at most 65535 (got 70000)"),
    "no_model": (", model_path: /data/model", "", "7:1: missing key 'model_path' in client"),
    "router_kind": ("router: {on: p0}", "router: {on: p0, kind: sglang_router}",
                    "6:24: router.kind: must be 'sglang-router' or 'smg' (got 'sglang_router'); "
                    "did you mean 'sglang-router'?"),
    "variable_name": ("ssh: d0", "ssh: d0, env: {A-B: x}",
                      "5:42: hosts.d0.env.A-B: 'A-B' is not the name of an environment variable"),
    "newline_in_variable": ("ssh: d0", 'ssh: d0, env: {A: "x\\ny"}',
                            "5:40: hosts.d0.env.A: must be printable text on one line"),
    "program_as_text": ("workdir:", 'programs: {server: "python3 -m x"}\nworkdir:',
                        "8:20: programs.server: must be a list (got 'python3 -m x')"),
    "empty_program": ("workdir:", "programs: {server: []}\nworkdir:",
                      "8:20: programs.server: has too few items; at least 1"),
    "unknown_stage": ("workdir:", "timeouts: {mesure: 10}\nworkdir:",
                      "8:12: unknown key 'mesure' in timeouts; did you mean 'measure'?"),
    "no_time": ("workdir:", "timeouts: {measure: 0}\nworkdir:",
                "8:21: timeouts.measure: must be more than 0 (got 0)"),
    "word_for_simulated": ("workdir:", 'simulated: "yes"\nworkdir:',
                           "8:12: simulated: must be true or false (got 'yes')"),
    "version_as_number": ("workdir:", "engine: {version: 0.5}\nworkdir:",
                          "8:19: engine.version: must be text in quotes (got 0.5)"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_pool_names_its_place(old: str, new: str, message: str) -> None:
    """Each broken pool is refused with one exact `file:line:col: message`."""
    with pytest.raises(InputError) as refused:
        pool(old, new)
    assert str(refused.value) == f"pool.yaml:{message}"


def test_pool_of_another_deployment_does_not_fit() -> None:
    """A goal for mixed serving is refused on a prefill/decode pool."""
    goal = parse_goal(changed("deployment: pd", "deployment: mixed", changed("role: prefill", "role: mixed")), "g")
    with pytest.raises(InputError) as refused:
        check_fit(pool(), goal, "pool.yaml")
    assert str(refused.value) == "pool.yaml: the goal deploys mixed, the cards of this pool are for pd"


def test_pool_of_the_same_deployment_fits() -> None:
    """A prefill/decode goal fits a prefill/decode pool."""
    check_fit(pool(), parse_goal(GOAL, "goal.yaml"), "pool.yaml")
