"""The prefix cache of one rank: which prompt tokens need not be computed again.

A radix tree over segments. Hits are whole pages; at least one token of a prompt is always computed. Least recently used
leaves are evicted first. Invariant: `used` is the sum of all stored tokens and never exceeds `capacity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executor.simulated.model.workload import Segment


class _Node:
    __slots__ = ("children", "key", "parent", "tokens", "used_at")

    def __init__(self, key: str, parent: _Node | None, tokens: int, used_at: int) -> None:
        self.key, self.parent, self.tokens, self.used_at = key, parent, tokens, used_at
        self.children: dict[str, _Node] = {}


class PrefixCache:
    """`capacity` in tokens; `granularity` is the page of a hit."""

    def __init__(self, capacity: int, granularity: int) -> None:
        self.capacity, self.granularity = capacity, granularity
        self.used = 0
        self._ticks = 0
        self._root = _Node("", None, 0, 0)

    def match(self, prompt: Sequence[Segment]) -> int:
        """Tokens of `prompt` that are cached, rounded down to whole pages and below the prompt length."""
        self._ticks += 1
        node, matched = self._root, 0
        for key, tokens in prompt:
            child = node.children.get(key)
            if child is None:
                break
            child.used_at = self._ticks
            matched += min(child.tokens, tokens)
            if child.tokens < tokens:
                break
            node = child
        limit = min(matched, sum(tokens for _, tokens in prompt) - 1)
        return limit // self.granularity * self.granularity

    def insert(self, prompt: Sequence[Segment], computed: int) -> None:
        """Store the first `computed` tokens of `prompt`, in whole pages."""
        self._ticks += 1
        rest = computed // self.granularity * self.granularity
        node = self._root
        for key, tokens in prompt:
            if rest <= 0:
                break
            node = self._grow(node, key, min(tokens, rest))
            rest -= tokens
        self._evict()

    def clear(self) -> None:
        self._root = _Node("", None, 0, 0)
        self.used = 0

    def _grow(self, node: _Node, key: str, tokens: int) -> _Node:
        child = node.children.get(key)
        if child is None:
            child = node.children[key] = _Node(key, node, 0, self._ticks)
        if tokens > child.tokens:
            self.used += tokens - child.tokens
            child.tokens = tokens
        child.used_at = self._ticks
        return child

    def _evict(self) -> None:
        while self.used > self.capacity:
            leaf = min(self._leaves(self._root), key=lambda node: node.used_at)
            if leaf.parent is not None:
                del leaf.parent.children[leaf.key]
            self.used -= leaf.tokens

    def _leaves(self, node: _Node) -> list[_Node]:
        found: list[_Node] = []
        stack = list(node.children.values())
        while stack:
            top = stack.pop()
            if top.children:
                stack.extend(top.children.values())
            else:
                found.append(top)
        return found

    def heads(self) -> list[str]:
        """Keys of the first segments in the tree."""
        return list(self._root.children)

    def dump(self) -> list[list[Any]]:
        """The tree as rows `[parent row or -1, key, tokens]`, oldest use first among siblings, for `load`."""
        rows: list[list[Any]] = []
        stack = [(self._root, -1)]
        while stack:
            node, row = stack.pop()
            for child in sorted(node.children.values(), key=lambda item: item.used_at):
                rows.append([row, child.key, child.tokens])
                stack.append((child, len(rows) - 1))
        return rows

    def load(self, rows: list[list[Any]]) -> None:
        self.clear()
        nodes: list[_Node] = []
        for parent, key, tokens in rows:
            self._ticks += 1
            above = self._root if parent < 0 else nodes[int(parent)]
            nodes.append(self._grow(above, str(key), int(tokens)))
