"""How many prefill batches does the *installed* scheduler form for a load? Runs its real admission code on the CPU.

Usage: python3 count_prefill_batches.py QUESTION, with QUESTION a JSON object
{"requests": 320, "prompt_tokens": 16388, "cached_tokens": 0,
 "variants": [{"cap": 1, "chunk": 8192, "page": 128, "max_prefill_tokens": 16384, "radix_cache": true}, …]}

Writes one JSON object: {"release": …, "counts": [{"batches": 960, "tokens": …, "first": [[8192], …]}, …]}, one count
per variant, or {"release": …, "error": …}. Only the admission module of the installation is executed, with inert
stand-ins for everything that it imports from its own package: no device is touched, no model is loaded, nothing is
written. It proves that a mechanism can be reached, never that it is faster. Python 3.8, standard library only.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

FIRST = 8  # batches shown
MEMORY = 10**9  # tokens: memory is never the limit here
UNKNOWN_BUILD = (
    *(AttributeError, TypeError, ValueError, LookupError, ImportError, RuntimeError, AssertionError, OSError),
    *(SyntaxError, ArithmeticError),
)


class Inert:
    """Stands in for whatever the module asks of the rest of its package: falsy, zero, empty, callable."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()

    def __call__(self, *_: object, **__: object) -> Inert:
        return Inert()

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __class_getitem__(cls, _: object) -> type:
        return cls


class Settings:
    """Environment settings of the package: all off."""

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(get=lambda: "compact" if name.endswith("_MODE") else 0)


class InertModule(types.ModuleType):
    """A module of the package in which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _inert_value(name)
        setattr(self, name, value)
        return value


def _inert_value(name: str) -> Any:
    if name == "envs":
        return Settings()
    if name.startswith("is_") or name == "get_bool_env_var":
        return lambda *_, **__: False
    if name.startswith("page_interleave"):
        return lambda *_, **__: 1
    if name.startswith("mamba_"):
        return lambda *_, **__: 0
    return type(name, (Inert,), {}) if name[0].isupper() else Inert()


class InertFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import of the given packages."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        if fullname.partition(".")[0] in self._packages:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return InertModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


class Request:
    """One request as the admission code sees it, under the names of every generation of the scheduler."""

    def __init__(self, number: int, tokens: int, cached: int) -> None:
        self.rid, self.priority, self.n = str(number), 0, tokens
        self.origin_input_ids = self.full_untruncated_fill_ids = range(tokens)
        self.fill_len = tokens
        self.output_ids: list[int] = []
        self.sampling_params = types.SimpleNamespace(max_new_tokens=1, ignore_eos=True)
        self.kv = types.SimpleNamespace(req_pool_idx=None, holds_mamba=False)
        self.retracted_stain = self.is_dllm_prefill = self.host_hit_is_storage = False
        self.prefix_len, self.prefix_indices, self.extend_end = cached, range(cached), 0
        self.begin_pass()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.endswith(("_length", "_start", "_tokens", "_len")) else None

    def begin_pass(self) -> None:
        """Everything that is not computed yet is up for admission."""
        self.fill_ids = list(range(self.n))
        self.extend_input_len = self.n - len(self.prefix_indices)
        self.set_extend_range(len(self.prefix_indices), self.n)

    def end_pass(self, admitted: int) -> None:
        """What was computed is the prefix of the next pass."""
        self.prefix_len = len(self.prefix_indices) + admitted
        self.prefix_indices = range(self.prefix_len)

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    def set_extend_input_len(self, tokens: int) -> None:
        self.extend_input_len = tokens

    def set_extend_range(self, start: int, end: int) -> None:
        self.extend_range = types.SimpleNamespace(start=start, end=end, length=end - start)

    def is_dllm(self) -> bool:
        return False

    def needs_host_load_back(self) -> bool:
        return False

    def materialized_host_hit_len(self) -> int:
        return 0

    def fulfilled_storage_hit_len(self, _: object) -> int:
        return 0


class Cache:
    """A prefix cache that holds nothing beyond what the requests say is cached."""

    def __init__(self, enabled: bool) -> None:
        self.disable = not enabled

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("supports_", "is_")):
            return lambda *_, **__: False
        if name.endswith("_size"):
            return lambda *_, **__: 0
        return Inert()


class Memory:
    """An allocator that always has room."""

    def __init__(self, page: int, budget_module: Any) -> None:
        self.page_size = page
        self._budget_module = budget_module

    def create_prefill_budget(self, tree_cache: object, num_mixed_decode_tokens: int = 0) -> Any:
        """Newer releases account for memory in a class of their own; it is theirs that runs."""
        return self._budget_module.PrefillBudget(self, tree_cache, num_mixed_decode_tokens=num_mixed_decode_tokens)

    def request_slot_reserve(self, **_: object) -> int:
        return 0

    def available_size(self) -> int:
        return MEMORY

    full_available_size = swa_available_size = available_size


def load_policy(package: pathlib.Path) -> Any:
    """The installation's own admission module, alone."""
    packages = {"sglang"}
    packages.update(name for name in ("torch", "numpy", "msgspec") if importlib.util.find_spec(name) is None)
    sys.meta_path.insert(0, InertFinder(packages))
    policy = load_file(package / "srt" / "managers" / "schedule_policy.py")
    budget = package / "srt" / "mem_cache" / "prefill_budget.py"
    policy.installed_budget = load_file(budget) if budget.is_file() else None
    return policy


def load_file(path: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location("installed_" + path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def admitted_by(policy: Any) -> Callable[[Request], int]:
    """How this generation of the scheduler says how many tokens of a request it admitted."""
    source = pathlib.Path(policy.__file__).read_text(encoding="utf-8")
    if "extend_range" in source:
        return lambda request: int(request.extend_range.length)
    if ".extend_end" in source:
        return lambda request: request.extend_len
    return lambda request: request.extend_input_len


class Load:
    """The admission loop of one DP rank over a queue that is full from the start."""

    def __init__(self, policy: Any, question: dict[str, Any], variant: dict[str, Any]) -> None:
        self.policy, self.question = policy, question
        self.admitted = admitted_by(policy)
        parameters = inspect.signature(policy.PrefillAdder.__init__).parameters
        self.counts_waiting = "waiting_queue_len" in parameters
        everything = {
            "page_size": variant["page"],
            "tree_cache": Cache(variant["radix_cache"]),
            "token_to_kv_pool_allocator": Memory(variant["page"], policy.installed_budget),
            "running_batch": types.SimpleNamespace(reqs=[], batch_size=lambda: 0, is_empty=lambda: True),
            "new_token_ratio": 0.7,
            "rem_input_tokens": variant["max_prefill_tokens"],
            "rem_chunk_tokens": variant["chunk"],
            "num_mixed_decode_tokens": 0,
            "priority_scheduling_preemption_threshold": 0,
            "prefill_max_requests": variant["cap"],
        }
        self.arguments = {name: value for name, value in everything.items() if name in parameters}
        if variant["cap"] is not None and "prefill_max_requests" not in parameters:
            raise RuntimeError("this build knows no prefill-max-requests")

    def batches(self) -> list[list[int]]:
        """Tokens of every request in every batch, in order."""
        size, cached = self.question["prompt_tokens"], self.question["cached_tokens"]
        queue = [Request(number, size, cached) for number in range(self.question["requests"])]
        chunked, formed = None, []
        while queue or chunked is not None:
            waiting = {"waiting_queue_len": len(queue)} if self.counts_waiting else {}
            adder = self.policy.PrefillAdder(**self.arguments, **waiting)
            if chunked is not None:
                chunked.begin_pass()
                chunked = adder.add_chunked_req(chunked)
            self.admit(adder, queue, chunked is not None)
            if not adder.can_run_list:
                raise RuntimeError("the installed scheduler admits nothing of this load")
            taken = {id(request) for request in adder.can_run_list}
            queue = [request for request in queue if id(request) not in taken]
            chunked = chunked if adder.new_chunked_req is None else adder.new_chunked_req
            formed.append([self.forward(request) for request in adder.can_run_list])
        return formed

    def admit(self, adder: Any, queue: Sequence[Request], has_chunked: bool) -> None:
        outcomes = self.policy.AddReqResult
        known = inspect.signature(adder.add_one_req).parameters
        arguments = {"has_chunked_req": has_chunked, "truncation_align_size": None}
        arguments = {name: value for name, value in arguments.items() if name in known}
        for request in queue:
            if adder.budget_state() == outcomes.OTHER:
                return
            request.begin_pass()
            if adder.add_one_req(request, **arguments) != outcomes.CONTINUE:
                return

    def forward(self, request: Request) -> int:
        tokens = self.admitted(request)
        request.end_pass(tokens)
        return tokens


def count(policy: Any, question: dict[str, Any], variant: dict[str, Any]) -> dict[str, Any]:
    """Tokens must be conserved, or this build is not understood and there is no answer."""
    formed = Load(policy, question, variant).batches()
    tokens = sum(map(sum, formed))
    needed = question["requests"] * (question["prompt_tokens"] - question["cached_tokens"])
    if tokens != needed:
        raise RuntimeError(f"tokens are not conserved: {tokens} of {needed}; this build is not understood")
    return {"batches": len(formed), "tokens": tokens, "first": formed[:FIRST]}


def installed_release(package: pathlib.Path) -> str | None:
    for name in ("_version.py", "version.py"):
        path = package / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = re.search(r"__version__\s*=\s*(?:version\s*=\s*)?['\"]([^'\"]+)['\"]", text)
        if found:
            return found.group(1)
    return None


def answer(question: dict[str, Any]) -> dict[str, Any]:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return {"release": None, "error": f"sglang is not installed for {sys.executable}"}
    package = pathlib.Path(next(iter(spec.submodule_search_locations)))
    release = installed_release(package)
    try:
        policy = load_policy(package)
        counts = [count(policy, question, variant) for variant in question["variants"]]
    except UNKNOWN_BUILD as error:
        return {"release": release, "error": f"{type(error).__name__}: {error}"}
    return {"release": release, "counts": counts}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.argv[1]))) + "\n")
