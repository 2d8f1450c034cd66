"""The prompt files as the package gives them."""

from __future__ import annotations

import hashlib

import pytest

import prompts


@pytest.mark.parametrize("name", ["planner.md", "repair.md"])
def test_version_is_the_digest_of_the_file(name: str) -> None:
    """A changed word is another version."""
    text = prompts.load(name)
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == prompts.version(name)
    assert len(text.splitlines()) <= 80  # one page each


@pytest.mark.parametrize("name", ["../pyproject.toml", "/etc/passwd", "planner.md/../x", "Planner.md", ""])
def test_only_prompt_files_are_loaded(name: str) -> None:
    """A name is a name, never a path."""
    with pytest.raises(ValueError, match="not the name of a prompt file"):
        prompts.load(name)
