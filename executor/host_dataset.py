"""Builds the frozen data set of one scenario on a host, with the model's own tokenizer. Run there, never imported.

Python >= 3.8, standard library and, for real models, `tokenizers` (and `jinja2` for the chat template). Every row is a
function of (seed, kind, index) alone, so an interrupted build goes on where it stopped and ends in the same bytes.
A row is written only when its text, encoded again, has exactly the promised length, with and without the template.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

PROGRESS_EVERY = 16
FIT_ATTEMPTS = 60
WORD_POOL = 4096
SPARE_PAGES = 6  # for what a template or a re-encoding may shift
COPY_TASK = "\n\nRepeat the text above exactly, from its first word to its last."
ORDINARY_TASK = "\n\nContinue the text above in the same manner, as long as you can."


class BuildError(Exception):
    """The promised data cannot be built; the message says what to change."""


class WordLevelTokenizer:
    """A `WordLevel` tokenizer.json split at white space, read without any package: toy and simulated models."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.vocabulary = document["model"]["vocab"]
        self.unknown = self.vocabulary.get(document["model"].get("unk_token"), 0)

    def encode(self, text: str) -> list[int]:
        return [self.vocabulary.get(word, self.unknown) for word in text.split()]


class FastTokenizer:
    """Any `tokenizer.json` through the `tokenizers` package. Special tokens are the template's business."""

    def __init__(self, path: str) -> None:
        from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

        self._tokenizer = Tokenizer.from_file(path)
        self.vocabulary = self._tokenizer.get_vocab()

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def load_tokenizer(folder: str) -> Any:
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        raise BuildError(f"tokenizer {path} cannot be read: {error}") from None
    if document.get("model", {}).get("type") == "WordLevel":
        return WordLevelTokenizer(document)
    try:
        return FastTokenizer(path)
    except ImportError:
        raise BuildError("this tokenizer needs the package `tokenizers` in the Python that builds the data") from None


def load_template(folder: str) -> Callable[[str], str] | None:
    """The chat template around one user message, or None where the model has none."""
    template, special = _read_template(folder)
    if template is None:
        return None
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise BuildError("the chat template needs the package `jinja2` in the Python that builds the data") from None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise
    compiled = environment.from_string(template)

    def render(text: str) -> str:
        messages = [{"role": "user", "content": text}]
        return compiled.render(messages=messages, add_generation_prompt=True, **special)

    return render


def _raise(message: str) -> None:
    raise BuildError(f"the chat template refuses the message: {message}")


def _read_template(folder: str) -> tuple[str | None, dict[str, str]]:
    try:
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        config = {}
    template = config.get("chat_template")
    separate = os.path.join(folder, "chat_template.jinja")
    if template is None and os.path.isfile(separate):
        with open(separate, encoding="utf-8") as file:
            template = file.read()
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        special[name] = value.get("content", "") if isinstance(value, dict) else (value or "")
    return (template if isinstance(template, str) else None), special


def choose_words(tokenizer: Any) -> list[str]:
    """Words that are one token between any two others: text made of them grows by one token a word."""
    names = sorted({_plain(token) for token in tokenizer.vocabulary})
    candidates = [name for name in names if 2 <= len(name) <= 12 and name.isascii() and name.isalnum()]
    random.Random("words").shuffle(candidates)  # noqa: S311
    if len(candidates) < 3:
        raise BuildError("the vocabulary has fewer than three plain words")
    anchor = next((name for name in candidates if _adds_one(tokenizer, name, name)), None)
    if anchor is None:
        raise BuildError("no word of the vocabulary is a single token by itself")
    words = []
    for name in candidates:
        if _adds_one(tokenizer, anchor, name):
            words.append(name)
            if len(words) == WORD_POOL:
                break
    if len(words) < 16:
        raise BuildError(f"only {len(words)} words of the vocabulary are single tokens; 16 are needed")
    return words


def _plain(token: str) -> str:
    """A vocabulary entry without the marks that byte-level and sentence-piece vocabularies put for a blank."""
    return token.lstrip("\u0120\u2581")


def _adds_one(tokenizer: Any, anchor: str, word: str) -> bool:
    without = len(tokenizer.encode(f"{anchor} {anchor}"))
    return len(tokenizer.encode(f"{anchor} {word} {anchor}")) == without + 1


class Builder:
    def __init__(self, spec: dict[str, Any], tokenizer: Any, render: Callable[[str], str] | None) -> None:
        self.spec, self.tokenizer, self.render = spec, tokenizer, render
        self.words = choose_words(tokenizer)
        self.task = COPY_TASK if spec["task"] == "copy" else ORDINARY_TASK
        self.prefixes: dict[int, list[str]] = {}
        self.order: list[int] = []

    def text(self, kind: str, index: int) -> str:
        """The text of one request, of exactly `body_tokens`: shared prefix, own words, task."""
        rng = random.Random(f"{self.spec['seed']}/{kind}/{index}")  # noqa: S311
        has_prefix = self.spec["prefix_tokens"] and self.spec["seed_requests"] and kind != "warm_up"
        shared = self.prefix(self.group_of(kind, index)) if has_prefix else []
        own = rng.choices(self.words, k=max(self.spec["body_tokens"] - len(shared), 1))
        return self._fit(shared, own, rng)

    def group_of(self, kind: str, index: int) -> int:
        """Seeds and checks visit the groups in turn, measured rows in shuffled order and equally often.

        In turn, a load of C requests in flight would always hold the same groups, whatever C is.
        """
        groups = self.spec["seed_requests"]
        if kind != "measure":
            return int(index % groups)
        if not self.order:
            self.order = [row % groups for row in range(self.spec["requests"])]
            random.Random(f"{self.spec['seed']}/group order").shuffle(self.order)  # noqa: S311
        return int(self.order[index])

    def prefix(self, group: int) -> list[str]:
        """Words shared by a group, so many that they encode to `prefix_tokens` where they stand."""
        if group not in self.prefixes:
            rng = random.Random(f"{self.spec['seed']}/prefix/{group}")  # noqa: S311
            count = self.spec["prefix_tokens"] - self._lead()
            if count < 1:
                raise BuildError(f"prefix_tokens {self.spec['prefix_tokens']} is shorter than the template itself")
            self.prefixes[group] = rng.choices(self.words, k=count)
        return self.prefixes[group]

    def _lead(self) -> int:
        """Tokens that the template puts before the text, which every request shares."""
        if self.render is None:
            return 0
        first, second = (self.tokenizer.encode(self.render(word)) for word in self.words[:2])
        return common_prefix(first, second)

    def _fit(self, shared: list[str], own: list[str], rng: random.Random) -> str:
        wanted = self.spec["body_tokens"]
        for _ in range(FIT_ATTEMPTS):
            text = " ".join(shared + own) + self.task
            surplus = len(self.tokenizer.encode(text)) - wanted
            if surplus == 0:
                return text
            if surplus >= len(own):
                raise BuildError(f"a body of {wanted} tokens leaves no own words beside prefix and task")
            own = own[:-surplus] if surplus > 0 else own + rng.choices(self.words, k=-surplus)
        raise BuildError(f"no text of exactly {wanted} tokens after {FIT_ATTEMPTS} attempts")

    def encoded(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text if self.render is None else self.render(text)))

    def row(self, kind: str, index: int) -> dict[str, Any]:
        text = self.text(kind, index)
        length, wanted = len(self.encoded(text)), self.spec["encoded_tokens"]
        if length != wanted:
            added, expected = length - self.spec["body_tokens"], wanted - self.spec["body_tokens"]
            what = f"the chat template adds {added} tokens" if self.render else "this model has no chat template"
            raise BuildError(f"{what}; the scenario says {expected}: set encoded_tokens to {length}")
        if self.spec["client"] == "bench_serving" and kind in ("measure", "warm_up"):
            return {"conversations": [{"role": "user", "content": text}, {"role": "assistant", "content": text[:80]}]}
        return {"question": text, "answer": "", "max_tokens": self.spec["output_tokens"]}


def common_prefix(first: list[int], second: list[int]) -> int:
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)


PARTS = ("measure", "warm_up", "seed", "check")
COUNT_OF = {
    "measure": "requests",
    "warm_up": "warm_up_requests",
    "seed": "seed_requests",
    "check": "check_requests",
}
DEFAULTS = {"client": "aisbench", "page_size": 128, "prefix_tokens": None, "per_request_min": None}


def build(given: dict[str, Any], folder: str, report: Callable[[dict[str, Any]], None]) -> None:
    spec = complete(given)
    builder = Builder(spec, load_tokenizer(spec["tokenizer"]), load_template(spec["tokenizer"]))
    shared = check_prefix(builder)
    os.makedirs(folder, exist_ok=True)
    counts = [(part, spec[COUNT_OF[part]]) for part in PARTS if spec[COUNT_OF[part]]]
    total, done, parts = sum(n for _, n in counts), 0, {}
    for part, count in counts:
        for index in write_rows(builder, folder, part, count):
            done += 1
            if done % PROGRESS_EVERY == 0 or index == count - 1:
                report({"event": "progress", "part": part, "done": done, "total": total})
        parts[part] = describe(os.path.join(folder, part + ".jsonl"), count)
    manifest = {"spec": given, "parts": parts, "template": builder.render is not None, **shared}
    write_whole(os.path.join(folder, "manifest.json"), json.dumps(manifest, sort_keys=True, indent=1))
    report({"event": "built", "total": total, **manifest})


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """The specification with its defaults: a warm cache without a prefix length gets the shortest that is safe."""
    spec = {**DEFAULTS, **given}
    missing = [name for name in ("tokenizer", "task", "seed", *COUNT_OF.values()) if name not in spec]
    missing += [name for name in ("body_tokens", "encoded_tokens", "output_tokens") if name not in spec]
    if missing:
        raise BuildError(f"the specification lacks {', '.join(missing)}")
    if spec["per_request_min"] and not spec["prefix_tokens"]:
        page = spec["page_size"]
        pages = -(-int(spec["per_request_min"] * spec["encoded_tokens"]) // page) + SPARE_PAGES
        longest = (spec["encoded_tokens"] - 1) // page
        spec["prefix_tokens"] = min(pages, longest) * page
    return spec


def check_prefix(builder: Builder) -> dict[str, Any]:
    """What two requests of one group really share once encoded, in whole pages. Refuses too small a share."""
    spec = builder.spec
    if not spec["prefix_tokens"] or not spec["seed_requests"]:
        return {"shared_tokens": 0, "cacheable_tokens": 0}
    group = builder.group_of("measure", 0)
    first, second = (builder.encoded(builder.text(*place)) for place in (("seed", group), ("measure", 0)))
    shared = common_prefix(first, second)
    cacheable = shared // spec["page_size"] * spec["page_size"]
    share, wanted = cacheable / spec["encoded_tokens"], spec["per_request_min"] or 0.0
    if share < wanted:
        raise BuildError(
            f"{shared} shared tokens are {cacheable} in whole pages of {spec['page_size']}: {100 * share:.4f} % of "
            f"{spec['encoded_tokens']}, below {100 * wanted:.4f} %; lengthen prefix_tokens"
        )
    return {"shared_tokens": shared, "cacheable_tokens": cacheable}


def write_rows(builder: Builder, folder: str, kind: str, count: int) -> Iterator[int]:
    """Rows 0 … count-1, those of an interrupted build kept. Yields the index of every row that is there."""
    final, partial = (os.path.join(folder, kind + suffix) for suffix in (".jsonl", ".jsonl.part"))
    if os.path.isfile(final):
        yield from range(count)
        return
    kept = keep_whole_lines(partial)
    yield from range(min(kept, count))
    with open(partial, "ab") as file:
        for index in range(kept, count):
            line = json.dumps(builder.row(kind, index), ensure_ascii=False, separators=(",", ":"))
            file.write(line.encode("utf-8") + b"\n")
            yield index
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, final)


def keep_whole_lines(path: str) -> int:
    """Cut a torn last line off a partial file; the number of whole lines that stay."""
    if not os.path.isfile(path):
        return 0
    whole, lines = 0, 0
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                whole, lines = whole + len(line), lines + 1
    with open(path, "r+b") as file:
        file.truncate(whole)
    return lines


def describe(path: str, rows: int) -> dict[str, Any]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return {"path": path, "sha256": digest.hexdigest(), "rows": rows, "bytes": os.path.getsize(path)}


def write_whole(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="build one frozen data set")
    parser.add_argument("--spec", required=True, help="path of the specification, JSON")
    parser.add_argument("--out", required=True, help="folder of the parts and of manifest.json")
    options = parser.parse_args(arguments)

    def report(event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event, sort_keys=True) + "\n")
        sys.stdout.flush()

    try:
        with open(options.spec, encoding="utf-8") as file:
            spec = json.load(file)
        build(spec, options.out, report)
    except BuildError as error:
        report({"event": "refused", "message": str(error)})
        return 2
    except OSError as error:
        report({"event": "failed", "message": f"{error.filename}: {error.strerror}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
