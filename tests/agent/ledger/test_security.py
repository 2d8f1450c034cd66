"""Stored text is hostile: it becomes neither markup nor a new line, and private details do not get out.

The threats are S4 (secrets), S9 (HTML), S10 (CSV, in test_tables), S13 (paths, in test_links) and S20 (lines).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent.ledger.build import build_ledger
from agent.ledger.document import Code, Label, Page, PageLink, Paragraph, Strong, Table
from agent.ledger.html_writer import HtmlWriter
from agent.ledger.markdown_writer import MarkdownWriter
from agent.ledger.redaction import MAX_TEXT, Redactor
from agent.ledger.render import Renderer
from agent.ledger.writer import Writer
from experiments.card import CardDraft, EvidenceRef, Prediction, Source, Wall
from experiments.ledger import LedgerEntry
from experiments.serving_config import Change, Kind, Role
from experiments.trial import Reason, Sent, Stage
from tests.agent.ledger.html_page import read_html
from tests.agent.ledger.page_texts import texts_of
from tests.factories import Idea, Night, Performance, a_fault

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<!-- --><b>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    "![x](http://evil.example/a.png)",
    "<http://evil.example>",
    "`</code><script>1</script>`",
    "a | b | c",
    "**bold** __bold__ ~~gone~~",
    "\n\n# Heading\n\n- item",
    "{{ 7*7 }} {% raw %}",
    "&lt;script&gt;",
    "\x1b]8;;http://evil\x07link\x1b]8;;\x07",
    "\u202egnp.exe",
    "\\<script>alert(1)</script>",
    "<ScRiPt\x00>alert(1)</sCrIpT>",
    "1. list\n2. list",
    "> quote",
    "=====",
    "<iframe srcdoc='<script>1</script>'>",
    "a\r\nSet-Cookie: x",
]


def hostile_night(payload: str) -> list[LedgerEntry]:
    """The payload in every text that a planner, a server, a host or an operator can write."""
    draft = CardDraft(
        change=Change(role=Role.DECODE, kind=Kind.ENV, name="SGLANG_ENABLE_COMPACT", from_value="0", to_value=payload),
        wall=Wall.UNKNOWN,
        mechanism=payload,
        evidence=(EvidenceRef(id=payload, value=1.0),),
        prediction=Prediction(low=0, high=0.1, probability=0.5),
        if_promising=payload,
        if_negative=payload,
        source=Source.LLM,
        prompt_digest=payload,
    )
    repaired = a_fault(Stage.COLLECT, Reason.POST_PROCESSING, Sent.FINISHED, payload, repaired=True, repair=payload)
    broken = a_fault(Stage.LAUNCH, Reason.LAUNCH, Sent.NOT_SENT, payload)
    kept = Idea(draft=draft, performance=Performance(per_card=240.0, ttft_s=20.0), repaired=repaired)
    failed = Idea(draft=draft.model_copy(update={"if_promising": "other"}), failure=broken)
    return Night(ideas=(kept, failed), text=payload).run(settle_held=True)


@pytest.fixture(scope="module")
def plain_shapes() -> dict[str, list[tuple[str, str]]]:
    """The structure of the pages whose every text is one word."""
    return {
        path: shape_of(text) for path, text in texts_of(hostile_night("some words")).items() if path.endswith(".md")
    }


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_becomes_markup(payload: str, plain_shapes: dict[str, list[tuple[str, str]]]) -> None:
    """HTML stays well-formed, with our elements, attributes and addresses; Markdown has the shape of plain words."""
    pages = texts_of(hostile_night(payload))
    for path in ("index.html", "cards/start.html", *sorted(p for p in pages if p.startswith("cards/c"))):
        if path.endswith(".html"):
            found = read_html(pages[path])
            assert found.errors == []
            assert [link for link in found.links if ":" in link or link.startswith("//")] == []
            assert all(source.startswith("data:image/svg+xml;base64,") for source in found.sources)
    names = {"index.md": "index.md", "cards/start.md": "cards/start.md", **_same_cards(pages, plain_shapes)}
    for path, plain in names.items():
        assert shape_of(pages[path]) == plain_shapes[plain]


def _same_cards(pages: dict[str, str], plain: Mapping[str, object]) -> dict[str, str]:
    """A card's file is named after its value: they are matched by number."""
    numbers = {path[:9]: path for path in plain if path.startswith("cards/c")}
    return {path: numbers[path[:9]] for path in pages if path.startswith("cards/c") and path.endswith(".md")}


def shape_of(markdown: str) -> list[tuple[str, str]]:
    """The structure of a Markdown page: what opens, how deep, and raw HTML; without the words."""
    shape = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(markdown):
        shape.append((token.type, token.tag))
        inner = [t for t in token.children or [] if t.type not in ("text", "text_special", "code_inline")]
        shape += [(t.type, t.content if t.type == "html_inline" else t.tag) for t in inner]
        if token.type == "html_block":
            assert re.fullmatch(r'<a id="[a-zA-Z0-9_-]+"></a>\n?', token.content)
    return shape


def test_the_policy_of_a_page_allows_no_script(ledger: Path) -> None:
    """Nothing may run and nothing may be fetched, even if a payload got through."""
    for page in ledger.rglob("*.html"):
        policy = read_html(page.read_text()).policy
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy


def test_pages_need_no_other_file(ledger: Path) -> None:
    """A page sent by mail is whole: no address, no import, no font from elsewhere."""
    for page in ledger.rglob("*.html"):
        text = page.read_text()
        assert re.search(r"(?i)https?://|url\(|@import|<link|<script", text) is None


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=300)
@pytest.mark.parametrize("writer_class", [HtmlWriter, MarkdownWriter])
def test_any_text_is_one_inert_piece_of_a_page(writer_class: type[Writer], text: str) -> None:
    """In a paragraph, a cell, a label, a link or code, any text leaves the shape of the page as it is."""
    writer = writer_class(Redactor(), {})
    lines = [Renderer(writer, "en").render(a_page(word)) for word in (text, "word")]
    if writer_class is HtmlWriter:
        assert read_html(lines[0]).errors == []
        assert read_html(lines[0]).elements == read_html(lines[1]).elements
    else:
        kinds = [[(t.type, t.tag) for t in MarkdownIt("gfm-like", {"linkify": False}).parse(line)] for line in lines]
        assert kinds[0] == kinds[1]


def a_page(text: str) -> Page:
    table = Table((text, "x"), ((text, Code(text)), (Label(text), (text, " ", text))), frozenset({1}))
    words = Paragraph(("a ", text, " ", Strong(f"b {text}"), " ", PageLink(text, "index")))
    return Page(path="index", title=f"a {text}", blocks=(words, table, Paragraph("end")))


PRIVATE = {
    "address": "10.23.45.67",
    "address with port": "172.16.0.9:30000",
    "address 6": "fd00:12::9f",
    "account": "tuner@node-17",
    "host": "npu17.cluster.internal",
    "url": "https://git.corp.example.cn/x?token=1",
    "key": "sk-proj-abcdefghijklmnop",
    "bearer": "Bearer abcdefghijklmnop",
    "assignment": "API_KEY=abcdefgh123",
    "password": 'password: "hunter 22"',
    "path": "/data/team-blue/weights/secret-model",
    "home": "~/keys/cluster",
    "windows path": r"C:\Users\wang\model",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
    "aws": "AKIAABCDEFGHIJKLMNOP",
    "pem": "-----BEGIN RSA PRIVATE KEY----- MIIEabc -----END RSA PRIVATE KEY-----",
}
LEAKS = {
    **PRIVATE,
    "password": "hunter",
    "path": "team-blue",
    "home": "keys",
    "windows path": "wang",
    "assignment": "abcdefgh123",
    "pem": "MIIEabc",
    "bearer": "abcdefghijklmnop",
    "url": "git.corp",
}


@pytest.mark.parametrize("name", list(PRIVATE))
@pytest.mark.parametrize("frame", ["launch failed at {} again", "连接{}失败", "{}.", "({})", "x={}"])
def test_a_private_detail_is_taken_out_by_its_shape(name: str, frame: str) -> None:
    """Addresses, hosts, accounts, keys and folders, in a sentence of either language."""
    assert LEAKS[name] not in Redactor()(frame.format(PRIVATE[name]))


@pytest.mark.parametrize(
    "text",
    [
        "sglang 0.5.12.post1",
        "20:29:48 UTC",
        "N=320 C=128 r=6",
        "max_total_tokens: 4096",
        "prefill/decode",
        "sglang.bench_serving",
        "experiments.csv",
        "236.83 tok/s/card",
        "+32.27 % [+30.10 %, +34.08 %]",
        "1/3 of 96.1613 %",
        "d4e662e04d7c77f6582408ca94b148ce5b4fbe238fc7f4544e0f3559f6a6cd69",
        "in_window:aisbench-2026-08",
        "预填充队列持续存在，解码队列为零",
    ],
)
def test_what_a_reviewer_needs_stays(text: str) -> None:
    """Versions, times, figures, digests and names of programs are no private details."""
    assert Redactor()(text) == text


def test_a_known_word_goes_as_a_whole_word() -> None:
    """The account `root` takes nothing out of "rooted", and a host called prefill leaves the knobs readable."""
    redact = Redactor(["root", "prefill", "npu-17"])
    assert redact("root rooted, prefill prefill-max-requests on npu-17:22 or NPU-17.") == (
        "‹private› rooted, prefill prefill-max-requests on ‹private›:22 or ‹private›."
    )


def test_canaries_reach_no_file(tmp_path: Path) -> None:
    """Secrets of the pool, planted plainly and in four encodings in every text, are in no byte of any file."""
    secrets = ["npu-host-canary-7", "Canary+Pass/Word9"]
    forms = [
        form
        for secret in secrets
        for form in (
            secret,
            quote(secret, safe=""),
            secret.encode().hex(),
            base64.b64encode(secret.encode()).decode(),
            base64.urlsafe_b64encode(b"xy" + secret.encode()).decode(),
        )
    ]
    build_ledger(hostile_night(" and ".join(forms)), tmp_path, artifacts=None, private=secrets)
    written = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()).lower()
    cores = [form.rstrip("=")[4:-4].lower().encode() for form in forms]
    assert [core for core in cores if core in written] == []


@given(st.text(max_size=200))
@settings(deadline=None, max_examples=300)
def test_any_text_is_one_printable_line(text: str) -> None:
    """No control, bidirectional, zero-width or line-breaking character comes through."""
    line = Redactor()(text)
    assert len(line.splitlines()) <= 1
    assert re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]", line) is None


def test_an_endless_text_is_cut() -> None:
    """A log that was stored whole does not fill the page."""
    assert len(Redactor()("字" * 100_000)) == MAX_TEXT


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["a", "a.", "a-", "/a", "a:", "token", "x@", "=", "::", "a_", "\x1b[", "-----BEGIN "])
def test_a_long_word_does_not_stall_the_redactor(unit: str) -> None:
    """The patterns take linear time on the worst words."""
    Redactor()(unit * 100_000)
