"""The functions of Kubernetes, by example."""

from __future__ import annotations

import pytest

from kubemachinery import cel


def evaluate(expression: str) -> object:
    program = cel.compile(expression, {})
    assert isinstance(program, cel.Program), str(program)
    return program.evaluate({}, cel.StepBudget(100_000))


@pytest.mark.parametrize(
    "expression",
    [
        # Strings.
        "'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == ''",
        "'hello mellow'.indexOf('ello', 2) == 7 && 'hello'.indexOf('x') == -1 && 'abc'.indexOf('') == 0",
        "'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1",
        "'TacoCat Ä'.lowerAscii() == 'tacocat Ä' && 'aä'.upperAscii() == 'Aä'",
        "'he he'.replace('he', 'we') == 'we we' && 'he he'.replace('he', 'we', 1) == 'we he'",
        "'a b c'.split(' ', 2) == ['a', 'b c'] && 'ab'.split('') == ['a', 'b'] && 'a'.split(',', 0) == []",
        "['x', 'y'].join() == 'xy' && ['x', 'y'].join('-') == 'x-y'",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco'",
        "'  \\ttrim\\n    '.trim() == 'trim'",
        "'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')",
        "'%s %d %.2f %x %b %%'.format([dyn('a'), dyn(255), dyn(1.5), dyn(255), dyn(5)]) == 'a 255 1.50 ff 101 %'",
        "'%s %s'.format([dyn(['x']), dyn({'b': 1, 'a': 2})]) == '[\"x\"] {\"a\":2, \"b\":1}'",
        "'%e'.format([12345.678]) == '1.234568×10⁰⁴'",
        'strings.quote(\'a "b"\\n\') == \'"a \\\\"b\\\\"\\\\n"\'',
        # Regular expressions find, rather than match from the start.
        "'abc 123'.matches('[0-9]+') && matches('abc', '^a.c$')",
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'1 a 2'.findAll('[0-9]') == ['1', '2'] && '1 a 2'.findAll('[0-9]', 1) == ['1']",
        # Lists.
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted()",
        "[1, 3].sum() == 4 && [1.5, 2.5].sum() == 4.0 && [duration('1m'), duration('1s')].sum() == duration('61s')",
        "[1, 3].min() == 1 && [1, 3].max() == 3",
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(9) == -1",
        "[1, 2, 1].distinct() == [1, 2] && [[1], [2, 3]].flatten() == [1, 2, 3]",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1] && [2, 1].sort() == [1, 2]",
        "lists.range(3) == [0, 1, 2] && [7, 8].first().value() == 7 && ![].last().hasValue()",
        # Sets.
        "sets.contains([1, 2], [2, 2]) && !sets.contains([1], [2])",
        "sets.equivalent([1, 1, 2], [2, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2])",
        # Quantities.
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('200M').compareTo(quantity('0.2G')) == 0",
        "quantity('50k').add(quantity('20k')) == quantity('70k') && quantity('50k').sub(20000) == quantity('30k')",
        "quantity('50k').asInteger() == 50000 && !quantity('1.5').isInteger() && sign(quantity('-1')) == -1",
        "isQuantity('1.3Gi') && !isQuantity('200K') && quantity('1500m').asApproximateFloat() == 1.5",
        # Addresses.
        "ip('::1').family() == 6 && ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified()",
        "isIP('10.0.0.1') && !isIP('010.0.0.1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('224.0.0.1').isLinkLocalMulticast()",
        "ip('8.8.8.8').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8",
        "!isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && string(cidr('::/0').ip()) == '::'",
        # URLs.
        "isURL('https://user:pass@example.com:80/path?query=val#fragment') && !isURL('../relative-path')",
        "!isURL('https://a:b:c/') && isURL('/absolute-path') && !isURL('')",
        "url('https://[::1]:80/').getHost() == '[::1]:80' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://example.com:80/').getPort() == '80' && url('/path').getScheme() == ''",
        "url('https://example.com/with space/').getEscapedPath() == '/with%20space/'",
        "url('https://example.com/p?k=a&k=b').getQuery() == {'k': ['a', 'b']}",
        # Semantic versions.
        "semver('1.2.3-alpha.1').isLessThan(semver('1.2.3')) && semver('1.10.0').isGreaterThan(semver('1.9.9'))",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.0.0+a').compareTo(semver('1.0.0+b')) == 0 && !isSemver('v1.0') && isSemver('v1.0', true)",
        # Formats: none is good news.
        "!format.dns1123Label().validate('my-name').hasValue() && format.dns1123Label().validate('My').hasValue()",
        "!format.qualifiedName().validate('example.com/name').hasValue()",
        "!format.dns1123LabelPrefix().validate('prefix-').hasValue()",
        "format.named('uuid').hasValue() && !format.named('nothing').hasValue()",
        "size(format.datetime().validate('yesterday').value()) == 1",
    ],
)
def test_a_function_by_example(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("'abc'.charAt(4)", "out of range"),
        ("[].min()", "need a list with items"),
        ("[1].slice(0, 2)", "cannot slice"),
        ("quantity('Three')", "Three"),
        ("quantity('9999999999999999999G').asInteger()", "cannot convert"),
        ("ip('127.0.0.256')", "cannot read"),
        ("url('relative')", "neither an absolute URI"),
        ("semver('1')", "cannot read"),
        ("'%d'.format(['a'])", "%d takes an integer"),
        ("'%f'.format([1])", "takes a double"),
        ("'%s'.format(['a', 'b'])", "more arguments"),
        ("'%y'.format([1])", "unrecognized formatting clause"),
        ("'a'.matches('a' + '(')", "not a regular expression"),
        ("lists.range(1000000)", "at most"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "overflow"),
    ],
)
def test_function_error_has_its_reason(expression: str, reason: str) -> None:
    found = evaluate(expression)
    assert isinstance(found, cel.CelError)
    assert reason in str(found)
