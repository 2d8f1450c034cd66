"""The prefix cache hits whole pages of what was computed, and forgets the oldest first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.workload import Segment
from executor.simulated.tokens import count_tokens, segment_prompts, split_blocks, wrap_chat


def test_a_hit_is_a_whole_number_of_pages() -> None:
    """118786 shared tokens of 131076 are 118784 cached: the field record's 90.6222 %."""
    cache = PrefixCache(10_000_000, 128)
    cache.insert((Segment("p", 118_786), Segment("seed", 12_290)), 131_076)
    hit = cache.match((Segment("p", 118_786), Segment("q", 12_290)))
    assert (hit, round(hit / 131_076 * 100, 4)) == (118_784, 90.6222)


def test_a_coarse_granularity_gives_the_hits_of_the_mixed_record() -> None:
    """Pages of 2048 explain 30720 of 32597 tokens per request, and 32768 of the warmed-up prompt itself."""
    cache = PrefixCache(10_000_000, 2048)
    warm = (Segment("system", 32_597), Segment("q0", 889))
    cache.insert(warm, 33_486)
    others = [cache.match((Segment("system", 32_597), Segment(f"q{n}", 889))) for n in range(1, 96)]
    assert sum(others) + cache.match(warm) == 2_951_168


def test_at_least_one_token_is_always_computed() -> None:
    """A prompt that is cached completely still computes its last page."""
    cache = PrefixCache(10_000, 128)
    cache.insert((Segment("a", 1024),), 1024)
    assert cache.match((Segment("a", 1024),)) == 896


def test_the_least_recently_used_prompt_goes_first() -> None:
    """Beyond its capacity the cache drops what was used longest ago."""
    cache = PrefixCache(2048, 128)
    for key in ("a", "b"):
        cache.insert((Segment(key, 1024),), 1024)
    cache.match((Segment("a", 1025),))
    cache.insert((Segment("c", 1024),), 1024)
    assert [cache.match((Segment(key, 1025),)) for key in ("a", "b", "c")] == [1024, 0, 1024]


prompts = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 700)), min_size=1, max_size=4), min_size=1, max_size=15
)


@settings(deadline=None, max_examples=80)
@given(prompts, st.integers(500, 4000))
def test_the_cache_never_holds_more_than_its_capacity(sequences: list[list[tuple[str, int]]], capacity: int) -> None:
    """Whatever is inserted, the stored tokens stay within the capacity, and a reloaded cache answers alike."""
    cache = PrefixCache(capacity, 16)
    asked = [tuple(Segment(f"{key}{tokens}", tokens) for key, tokens in sequence) for sequence in sequences]
    for prompt in asked:
        cache.insert(prompt, sum(segment.tokens for segment in prompt))
        assert 0 <= cache.used <= capacity
    copy = PrefixCache(capacity, 16)
    copy.load(cache.dump())
    assert [copy.match(prompt) for prompt in asked] == [cache.match(prompt) for prompt in asked]


def test_a_word_is_a_token_and_a_stand_in_is_as_many_as_it_says() -> None:
    """16384 words are 16388 tokens in a chat, and so is a stand-in for 16384."""
    words, stand_in = " ".join(f"w{n}" for n in range(16_384)), "<|seg:body:16384|>"
    assert [count_tokens(text) for text in (words, stand_in)] == [16_384, 16_384]
    assert sum(segment.tokens for segment in wrap_chat(split_blocks(words), 4)) == 16_388


def test_prompts_share_exactly_the_pages_they_have_in_common() -> None:
    """Two long texts that begin alike share their common pages; texts of their own share nothing."""
    common = [f"c{n}" for n in range(1024)]
    first, second, third = (" ".join([*common, name, *common]) for name in "xyz")
    other = " ".join(f"o{n}" for n in range(2049))
    split = segment_prompts([first, second, third, other])
    cache = PrefixCache(1_000_000, 128)
    cache.insert(split[0], 2049)
    assert [cache.match(prompt) for prompt in split[1:]] == [1024, 1024, 0]
    assert len(split[3]) == 2
