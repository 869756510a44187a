"""`-o go-template=…`: what templates make of a tree, as Go makes it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.errors import UsageError
from pykueue.cli.gotemplate import Template

TREE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"b": "2", "a": "1", "kueue.x-k8s.io/q": "main"}},
    "text": "hi",
    "empty": "",
    "yes": True,
    "no": False,
    "zero": 0,
    "seven": 7,
    "minus": -7,
    "half": 0.5,
    "big": 123456789.25,
    "huge": 1e21,
    "tiny": 0.00001,
    "whole": 100000.0,
    "list": [3, 1, 2],
    "names": ["a", "b"],
    "none": [],
    "map": {"k": {"deep": [1, {"x": "y"}]}, "z": False},
    "nulls": [None, {"v": None}],
    "markup": "<a href=\"x\">'&'</a>",
    "secret": "aGVsbG8=",
    "unicode": "é☃\u0001",
    "things": [{"name": "one", "n": 1}, {"name": "two", "n": 2}, {"name": "three", "n": 3}],
}

LANGUAGE = [
    # Text, and the space around actions
    ("plain text", "plain text"),
    ("", ""),
    ("{{.text}}", "hi"),
    ("a {{- .text -}} b", "ahib"),
    ("a {{- /* gone */ -}} b", "ab"),
    ("a {{-   .text   -}}   b", "ahib"),
    ("{{/* gone */}}x", "x"),
    ("a{{- .text}}\n\t{{.text -}}   x", "ahi\n\thix"),
    ("{{ .text\n }}", "hi"),
    ('{{"}}"}}', "}}"),
    # Fields; what is not there, and what is there and is nothing
    ("{{.metadata.name}} {{.map.k.deep}} {{$.text}}", "x [1 map[x:y]] hi"),
    ("{{.missing}} {{.missing.more}}", "<no value> <no value>"),
    ("{{index .nulls 0}} {{range .nulls}}[{{.}}]{{end}}", "<no value> [<no value>][map[v:<nil>]]"),
    ("{{(index .nulls 0).x}}{{$n := index .nulls 0}}{{$n.x}}", "<no value><no value>"),
    ('{{(index .things 0).name}} {{(index .map "no").x}}', "one <no value>"),
    # Constants
    (
        "{{1}} {{-1}} {{1.50}} {{1e3}} {{0x1F}} {{017}} {{0b11}} {{0o17}} {{1_000}} {{.5}} {{1.}} {{true}}",
        "1 -1 1.5 1000 31 15 3 15 1000 0.5 1 true",
    ),
    (r"""{{'a'}} {{'\n'}} {{"a\tb\x41\u00e9\"\\"}} {{`raw\n`}} {{"\xc3\xa9"}}""", '97 10 a\tbAé"\\ raw\\n é'),
    # Numbers and trees as Go prints them
    ("{{.huge}} {{.tiny}} {{.whole}} {{.big}} {{.half}} {{.minus}}", "1e+21 1e-05 100000 1.2345678925e+08 0.5 -7"),
    ("{{1e6}} {{123456.5}} {{print 0.1 1e-7 1e100 -0.0}}", "1e+06 123456.5 0.1 1e-07 1e+100 -0"),
    ("{{.map}} {{.list}} {{.none}} {{.yes}}", "map[k:map[deep:[1 map[x:y]]] z:false] [3 1 2] [] true"),
    # Variables live until their block ends
    ("{{$x := .seven}}{{$x}} {{$x = 8}}{{$x}}", "7 8"),
    ("{{$x := 1}}{{if true}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "21"),
    ('{{$s := ""}}{{range .names}}{{$s = print $s .}}{{end}}{{$s}}', "ab"),
    ("{{if $x := .empty}}{{else}}[{{$x}}]{{end}}", "[]"),
    # if, with
    ("{{if .yes}}1{{end}}{{if .no}}2{{else}}3{{end}}", "13"),
    ("{{if .zero}}4{{else if .empty}}5{{else if .none}}6{{else}}7{{end}}", "7"),
    ("{{with .map.k}}{{.deep}}{{$.text}}{{end}}{{with .empty}}x{{else}}{{.text}}{{end}}", "[1 map[x:y]]hihi"),
    ("{{with .no}}{{else with .text}}{{.}}{{end}}{{with $x := .text}}{{$x}}{{.}}{{end}}", "hihihi"),
    # range
    ("{{range .list}}{{.}},{{end}}", "3,1,2,"),
    ("{{range $v := .names}}{{$v}}{{$.text}}{{end}}", "ahibhi"),
    ("{{range $i, $v := .things}}{{if $i}}, {{end}}{{$v.name}}{{end}}", "one, two, three"),
    ("{{range $k, $v := .metadata.labels}}{{$k}}={{$v}} {{end}}", "a=1 b=2 kueue.x-k8s.io/q=main "),
    ("{{range .none}}x{{else}}empty{{end}}{{range .missing}}x{{else}}missing{{end}}", "emptymissing"),
    ("{{range .things}}{{if eq .n 2}}{{continue}}{{end}}{{.name}} {{end}}", "one three "),
    ("{{range .things}}{{if eq .n 2}}{{break}}{{end}}{{.name}} {{end}}", "one "),
    ("{{range $i, $v := .list}}{{range $.names}}{{$i}}{{$v}}{{.}} {{end}}{{end}}", "03a 03b 11a 11b 22a 22b "),
    ("{{$i := 0}}{{$v := 0}}{{range $i, $v = .names}}{{end}}{{$i}}{{$v}}", "1b"),
    # define, template, block
    ('{{define "t"}}<{{.}}>{{end}}{{template "t" .text}}{{template "t"}}{{template "t" 5}}', "<hi><<no value>><5>"),
    ('{{template "later" .}}{{define "later"}}{{$.text}}{{end}}{{block "b" .map}}{{.z}}{{end}}', "hifalse"),
    (
        '{{define "r"}}{{if .}}{{len .}}{{template "r" (slice . 1)}}{{end}}{{end}}{{template "r" .list}}',
        "321",
    ),
]
FUNCTIONS = [
    ('{{.text | printf "%s-%s" "a"}} {{"x" | print "y" | len}} {{.text | len | printf "%03d"}}', "a-hi 2 002"),
    ("{{and .yes .text}} {{and .zero .text}} {{or .zero .text}} {{or .zero .empty}}", "hi 0 hi "),
    ("{{or .yes (index .list 9)}} {{and .no (index .list 9)}} {{and .missing 1}}", "true false <no value>"),
    ("{{not .zero}} {{not .missing}} {{not nil}} {{not .map}}", "true true true false"),
    ("{{len .text}} {{len .unicode}} {{len .list}} {{len .map}}", "2 6 3 2"),
    ('{{index .list 1}} {{index .map "k" "deep" 1 "x"}} {{index .metadata.labels "kueue.x-k8s.io/q"}}', "1 y main"),
    ('{{index .map "none"}} {{index .text 0}}', "<no value> 104"),
    (
        "{{slice .text 1}} {{slice .list 1 2}} {{slice .text 0 1}} {{slice .text}} {{slice .unicode 0 2}}",
        "i [1] h hi é",
    ),
    ('{{print 1 2 "a" 3 "b" "c" 4.5 nil true}} {{println "a" 1}}{{print}}', "1 2a3bc4.5 <nil> true a 1\n"),
    ('{{eq 1 1}} {{eq .text "x" "hi"}} {{ne .text "x"}} {{eq .yes true}}', "true true true true"),
    ('{{lt 1 2}} {{le 2 2}} {{gt "b" "a"}} {{ge 1.5 1.5}} {{gt 1 2}}', "true true true true false"),
    ('{{eq .missing "x"}} {{eq .missing nil}} {{ne .missing "x"}}', "false true true"),
    ("{{html .markup}}", "&lt;a href=&#34;x&#34;&gt;&#39;&amp;&#39;&lt;/a&gt;"),
    ('{{html 1 nil "<"}}', "1&lt;no value&gt;&lt;"),
    ("{{js .markup}} {{js .unicode}}", r"""\u003Ca href\u003D\"x\"\u003E\'\u0026\'\u003C/a\u003E é☃\u0001"""),
    ('{{urlquery .markup " é~"}}', "%3Ca+href%3D%22x%22%3E%27%26%27%3C%2Fa%3E+%C3%A9~"),
    ("{{base64decode .secret}} {{.secret | base64decode}}", "hello hello"),
    ('{{exists .map "k"}} {{exists .map "none"}} {{exists .list 5}} {{exists .list "0"}}', "true false false false"),
    ("{{if (and (gt .seven 5) (lt .seven 10))}}in{{end}}", "in"),
]
VERBS = [
    ('{{printf "%s|%5s|%-5s|%.1s|%v" .text .text .text .text .text}}', "hi|   hi|hi   |h|hi"),
    ('{{printf "%q|%x|%X|% x|%#x" .text .text .text .text .text}}', '"hi"|6869|6869|68 69|0x6869'),
    (r'{{printf "%-4s|%5.1q|%+q|%#q|%q" "é" "abc" "é" "a" "a\n\x01\xff"}}', r'é   |  "a"|"\u00e9"|`a`|"a\n\x01\xff"'),
    ('{{printf "%d|%5d|%-5d|%05d|%+d|% d" 42 42 42 42 42 42}}', "42|   42|42   |00042|+42| 42"),
    ('{{printf "%06d|%-06d|%.3d|%6.3d|%+03d" -42 42 5 5 5}}', "-00042|42    |005|   005|+05"),
    ('{{printf "%x|%X|%#x|%o|%#o|%O|%b|%08b|%+x" 42 42 42 42 42 42 42 5 255}}', "2a|2A|0x2a|52|052|0o52|101010|00000101|+ff"),
    ('{{printf "%c|%3c|%q|%U|%#U" 42 65 42 42 42}}', "*|  A|'*'|U+002A|U+002A '*'"),
    ('{{printf "%f|%.2f|%8.3f|%-8.1f|%08.2f|%+.1f" .half .half .half .half .half .half}}',
     "0.500000|0.50|   0.500|0.5     |00000.50|+0.5"),
    ('{{printf "%e|%E|%g|%G|%v|%.3g" .half .big .big .big .big .big}}',
     "5.000000e-01|1.234568E+08|1.2345678925e+08|1.2345678925E+08|1.2345678925e+08|1.23e+08"),
    ('{{printf "%6g|%-8g|%08g|%+g|% g" .half .half .half .half .half}}', "   0.5|0.5     |000000.5|+0.5| 0.5"),
    ('{{printf "%x|%X|%.2x|%.0x|%+09x|%x|%b" .half .big 0.99999 1.5 1.0 0.0 .half}}',
     "0x1p-01|0X1.D6F3455P+26|0x1.00p+00|0x1p+01|+00x1p+00|0x0p+00|4503599627370496p-53"),
    ('{{printf "%t|%v|%5t|%q" .yes .no .yes .yes}}', "true|false| true|%!q(bool=true)"),
    ('{{printf "%v|%s|%d|%q|%5v" .names .names .list .names .list}}', '[a b]|[a b]|[3 1 2]|["a" "b"]|[    3     1     2]'),
    ('{{printf "%v|%s" .map .metadata.labels}}',
     "map[k:map[deep:[1 map[x:y]]] z:false]|map[a:1 b:2 kueue.x-k8s.io/q:main]"),
    ('{{printf "%#v %#v %+v" .text .list .map.k}}', '"hi" []interface {}{3, 1, 2} map[deep:[1 map[x:y]]]'),
    ('{{printf "%T %T %T %T %T %T" .text .yes .half .list .map nil}}',
     "string bool float64 []interface {} map[string]interface {} <nil>"),
    ('{{printf "%*d|%-*d|%.*f|%[2]d" 5 42 5 42 1 .half}}', "   42|42   |0.5|42"),
    ('{{printf "%[2]d %[1]d" 1 2}} {{printf "%[3]d" 1}}', "2 1 %!d(BADINDEX)"),
    ('{{printf "%d" .text}} {{printf "%s" .seven}} {{printf "%d" .half}}',
     "%!d(string=hi) %!s(int64=7) %!d(float64=0.5)"),
    ('{{printf "%12.0f" .no}} {{printf "%s|%5v" .nulls .nulls}}', "%!f(bool=       false) [<nil> map[v:<nil>]]|[<nil> map[    v:<nil>]]"),
    ('{{printf "%s" .missing}} {{printf "%v" .missing}} {{printf "%d %d" 1}}', "%!s(<nil>) <nil> 1 %!d(MISSING)"),
    ('{{printf "%d" 1 .half "x"}} {{printf "%"}} {{printf "100%%"}} {{printf "%z" .yes}}',
     "1%!(EXTRA float64=0.5, string=x) %!(NOVERB) 100% %!z(bool=true)"),
]  # fmt: skip
TABLE = [*LANGUAGE, *FUNCTIONS, *VERBS]


@pytest.mark.parametrize(("template", "filled"), TABLE)
def test_a_template_is_filled_in_as_go_does(template: str, filled: str) -> None:
    assert Template(template).fill(TREE) == filled


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl_makes_the_same_of_all_of_them(tmp_path: Path) -> None:
    file, mark = tmp_path / "thing.json", "\n=====\n"
    file.write_text(json.dumps(TREE))
    whole = mark.join(template for template, _ in TABLE)
    command = [
        "kubectl",
        "patch",
        "--local",
        "-f",
        str(file),
        "--type",
        "merge",
        "-p",
        "{}",
        "-o",
        f"go-template={whole}",
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split(mark) == [filled for _, filled in TABLE]


def test_so_many_rounds_are_a_range() -> None:
    """As in Go since 1.24; kubectl is older in many places."""
    assert Template("{{range $n := 3}}{{$n}}{{end}}{{range 0}}{{else}}none{{end}}").fill({}) == "012none"


def test_text_that_is_no_unicode_is_kept() -> None:
    filled = Template("{{slice .text 0 1}}").fill({"text": "é"})
    assert filled.encode("utf-8", "surrogateescape") == b"\xc3"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{.missing}}", "line 1, column 3: there is no key missing"),
        ("a\n {{.map.none.more}}", "line 2, column 4: there is no key none"),
        ('{{template "t"}}{{define "t"}}{{.x}}{{end}}', "there is no key x"),
    ],
)
def test_what_is_missing_can_be_refused(template: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Template(template).fill(TREE, allow_missing=False)
    assert sentence in str(refused.value)
    assert Template('{{.text}}{{index .map "none"}}').fill(TREE, allow_missing=False) == "hi<no value>"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        # Not understood
        ("x\n{{.a}", "line 2, column 5: '}' has no meaning here"),
        ("{{", "the braces are not closed"),
        ("{{end}}", "{{end}} without a block"),
        ("{{else}}", "{{else}} without a block"),
        ("{{if}}x{{end}}", "column 5: something is missing here"),
        ("{{if .x}}", "a block without an end"),
        ("{{if .x}}{{else}}{{else}}{{end}}", "else has no meaning here"),
        ("{{if .x}}{{end .y}}", "'.y' is not expected here"),
        ("{{range .x}}{{else if true}}{{end}}", "else if cannot follow range"),
        ("{{if .x}}{{else with true}}{{end}}", "else with cannot follow if"),
        ("{{break}}", "break outside of a range"),
        ('{{range .x}}{{block "b" .}}{{continue}}{{end}}{{end}}', "continue outside of a range"),
        ("{{template none}}", "a name in quotes must follow"),
        ('{{define "x"}}', "a block without an end"),
        ('{{if true}}{{define "x"}}{{end}}{{end}}', "define may stand only outside of all blocks"),
        ('{{"a}}', 'a text in " is not closed'),
        ("{{'ab'}}", "'ab' is not one character"),
        (r'{{"\q"}}', r"\q is no escape"),
        ("{{/* a }}", "a comment is not closed"),
        ("{{/* a */ b}}", "nothing may follow a comment"),
        ("{{ /* a */}}", "a comment is not closed, or does not begin at its braces"),
        ("{{..a}}", "'.a' is not expected here"),
        ("{{true.x}}", "'.x' is not expected here"),
        ("{{1a}}", "1a is no number"),
        ("{{99999999999999999999}}", "is too large"),
        ("{{|}}", "'|' is not expected here"),
        ("{{(.a}}", "'(' is not closed"),
        ("{{.a)}}", "')' is not expected here"),
        ("{{.a-b}}", "'-' has no meaning here"),
        ('{{"a" "b"}}', "only a function takes arguments"),
        ("{{$x, $y := .list}}", "no more than 1 can be set here"),
        ("{{range $x, $y, $z := .list}}{{end}}", "no more than 2 can be set here"),
        ("{{nope}}", "there is no function nope"),
        ("{{$nope}}", "there is no variable $nope"),
        ("{{$x = 1}}", "there is no variable $x"),
        ("{{if $x := .text}}{{end}}{{$x}}", "there is no variable $x"),
        ("{{1 | 2}}", "what follows '|' must be a function"),
        ("{{nil}}", "nil is no command"),
        ("{{" + "(" * 5000 + "}}", "nests too deeply"),
        # Not possible
        ("{{range $v := .nulls}}{{$v.v}}{{end}}", "<nil> has no field v"),
        ("{{.text.x}}", "string has no field x"),
        ("{{.text 1}}", "only a function takes arguments"),
        ("{{range .text}}{{end}}", "there is no range over string"),
        ("{{range $i, $v := 3}}{{end}}", "there is no range over int64"),
        ('{{template "none"}}', "there is no template none"),
        ('{{define "t"}}{{template "t"}}{{end}}{{template "t"}}', "calls itself without an end"),
        ("{{not}}", "not takes 1, and is given 0"),
        ("{{eq 1}}", "eq takes at least 2, and is given 1"),
        ("{{eq 1 1.0}}", "eq: int64 and float64 cannot be compared"),
        ("{{eq .map .map}}", "eq: map[string]interface {} and map[string]interface {} cannot be compared"),
        ("{{lt .missing 1}}", "lt: <nil> and int64 have no order"),
        ("{{lt true false}}", "lt: bool and bool have no order"),
        ("{{call .text}}", "call: string is no function"),
        ("{{call .missing 1}}", "call: <nil> is no function"),
        ("{{len 3}}", "len: int64 has no length"),
        ("{{index .list 3}}", "index: there is no place 3"),
        ("{{index .list -1}}", "index: there is no place -1"),
        ('{{index .list "a"}}', "index: places are numbers, and not string"),
        ("{{index .map 1}}", "index: the keys of a map are texts, and not int64"),
        ("{{index .missing 1}}", "index: nothing can be found in <nil>"),
        ("{{slice .map 1}}", "slice: map[string]interface {} cannot be sliced"),
        ("{{slice .list 2 1}}", "slice: a slice cannot go from 2 to 1"),
        ("{{slice .text 0 1 2}}", "slice: too many places"),
        ('{{base64decode "%"}}', "base64decode: the text is no base64"),
        ("{{base64decode .missing}}", "base64decode takes a text first, and not <nil>"),
        ("{{printf 1}}", "printf takes a text first, and not int64"),
        ('{{printf "%2000000d" 1}}', "printf: 2000000 is too wide"),
        ('{{printf "%#x" .half}}', "printf: %#x of a fraction is not offered"),
    ],
)  # fmt: skip
def test_one_that_is_wrong_is_a_sentence_with_its_place(template: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Template(template).fill(TREE)
    assert str(refused.value).startswith("go-template: line ")
    assert sentence in str(refused.value)


_WORDS = (
    *("{{", "}}", "{{-", "-}}", " ", "\n", ".", ".list", ".things", ".x", "$", "$v", ":=", "=", ",", "|", "(", ")"),
    *("if ", "else", "end", "range ", "with ", "break", "define", "template", "block", "nil", "true", "1", "-2", "1.5"),
    *('"t"', "`r`", "'c'", "/*", "*/", "{{end}}", "{{else}}", "{{.}}", "{{range .things}}", "{{if .x}}", "{{break}}"),
    *("eq ", "and ", "or ", "not ", "index ", "slice ", "len ", "print ", "html ", "js ", "exists ", "base64decode "),
    *('printf "%d" ', 'printf "%-5v|%q" ', 'printf "%[2]*.1f" ', 'printf "%x" '),
)


@given(st.one_of(st.text(), st.lists(st.sampled_from(_WORDS), max_size=12).map("".join)), st.booleans())
def test_any_text_is_filled_in_or_refused_in_a_sentence(text: str, allow_missing: bool) -> None:
    with contextlib.suppress(UsageError):
        Template(text).fill(TREE, allow_missing=allow_missing)
