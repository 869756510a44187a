"""Regular expressions: RE2's meaning, in time that no pattern can stretch."""

from __future__ import annotations

import pytest

from kubemachinery.cel import re2

DNS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (DNS, ["a", "a-b.c0", "x" * 200], ["", "-a", "a-", "a..b", "A", "a\n"]),
        ("b", ["abc"], ["ac"]),
        ("^$", [""], ["\n", "a"]),
        ("(?m)^b$", ["a\nb\nc"], ["ab"]),
        ("a.c", ["abc"], ["a\nc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        ("(?i)ÄB", ["äb", "ÄB"], ["a"]),
        ("(?i:a)b", ["Ab", "ab"], ["AB"]),
        ("^(a|bc)+$", ["abca"], ["ab"]),
        ("^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]),
        ("^a{2,}$", ["aa", "aaaaa"], ["a"]),
        ("^a{,2}$", ["a{,2}"], ["a"]),
        (r"^\d+$", ["12"], ["١٢", ""]),
        (r"^\w\W\s\S$", ["a- b"], ["ä- b"]),
        (r"^[^a-c\d]$", ["d"], ["a", "5"]),
        (r"^[]a-]+$", ["]a-"], ["b"]),
        (r"^[[:alpha:][:digit:]_]+$", ["aZ9_"], ["-"]),
        (r"^\p{L}\pN\P{L}$", ["é5 "], ["e5e"]),
        (r"^\p{Greek}+$", ["αβ"], ["ab"]),
        (r"^\x41\x{1F600}\t$", ["A😀\t"], ["A"]),
        (r"\bfoo\b", ["a foo b"], ["food"]),
        (r"\Boo", ["foo"], ["oo"]),
        (r"^\Qa.b\E+$", ["a.bbb"], ["axb"]),
        (r"^(?P<name>a)(?:b)?$", ["a", "ab"], ["b"]),
        ("^(|a)+$", ["", "aa"], ["b"]),
        (r"\Aa\z", ["a"], ["a\n", "ba"]),
        ("(a*)*b", ["aab", "b"], ["aa"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = re2.compile(pattern)
    assert [text for text in matching if not compiled.search(text)] == []
    assert [text for text in others if compiled.search(text)] == []


@pytest.mark.parametrize(
    ("pattern", "text", "span"),
    [
        ("a|ab", "xab", (1, 2)),
        ("ab|a", "xab", (1, 3)),
        ("a+?", "aaa", (0, 1)),
        ("a+", "baab", (1, 3)),
        ("(?U)a+", "aaa", (0, 1)),
        ("x*", "ax", (0, 0)),
        ("b$", "ab", (1, 2)),
        ("c", "ab", None),
    ],
)
def test_the_leftmost_match_and_among_those_the_preferred_one(
    pattern: str, text: str, span: tuple[int, int] | None
) -> None:
    assert re2.compile(pattern).find(text) == span


def test_matches_do_not_overlap_and_an_empty_one_does_not_follow_another() -> None:
    assert list(re2.compile("a*").find_all("baac")) == [(0, 0), (1, 3), (4, 4)]
    assert list(re2.compile("a").find_all("aaa", 2)) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        (")", "unexpected )"),
        ("[a", "missing ]"),
        ("[b-a]", "ends before it starts"),
        ("*a", "nothing to repeat"),
        ("a**", "follows a repetition"),
        ("a{1001}", "bounded by 1000"),
        ("a{3,2}", "ends before it starts"),
        ("(?=a)", "look-ahead"),
        ("(?!a)", "look-ahead"),
        ("(?<=a)", "look-behind"),
        (r"(a)\1", "back-references"),
        (r"\q", "unknown escape"),
        (r"\p{Klingon}", "unknown Unicode class"),
        ("\\", "lone backslash"),
        ("(?z)", "unknown flag"),
        ("(" * 500 + ")" * 500, "nested too deeply"),
        ("((a{100}){100}){100}", "too large"),
        ("((((){1000}){1000}){1000}){1000}", "too large"),
    ],
)
def test_what_re2_refuses_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(re2.PatternError) as caught:
        re2.compile(pattern)
    assert reason in str(caught.value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*x", "^(a*)*$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)*(.*)*x"])
def test_patterns_that_ruin_backtracking_engines_take_linear_time(pattern: str) -> None:
    assert re2.compile(pattern).search("a" * 20_000 + "!") is False


def test_search_with_too_many_steps_raises() -> None:
    # Every state of this automaton is new, and each is wide: no engine is quick here, so there is a limit.
    pattern = re2.compile("(x|y)*x(x|y){900}z")
    text = "".join("xy"[n * 2654435761 >> 17 & 1] for n in range(40_000))
    with pytest.raises(re2.TooCostly):
        pattern.search(text)
