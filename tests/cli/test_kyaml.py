"""`-o kyaml`: YAML whose braces and quotes leave nothing to guess."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pykueue.cli import kyaml

TREE = {
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"kueue.x-k8s.io/queue": "no", "on": "y"}},
    "empty": [{}, []],
    "mixed": [1, "two", True, None],
    "things": [{"a": 1}, {"b": [[2]]}],
    "script": 'set -e\n  echo "hi"\n\ndone',
    "note": "one\ttab\\ \x01\n",
}
WRITTEN = r"""---
{
  kind: "Thing",
  metadata: {
    name: "x",
    labels: {
      kueue.x-k8s.io/queue: "no",
      "on": "y",
    },
  },
  empty: [{}, []],
  mixed: [
    1,
    "two",
    true,
    null,
  ],
  things: [{
    a: 1,
  }, {
    b: [[
      2,
    ]],
  }],
  script: "\
     set -e\n\
    \  echo \"hi\"\n\
     \n\
     done\
    ",
  note: "\
     one	tab\\ \x01\n\
    ",
}
"""


def test_a_document_is_written_as_kubectl_writes_it() -> None:
    assert kyaml.written(TREE) == WRITTEN
    assert yaml.safe_load(WRITTEN) == TREE


@pytest.mark.parametrize(
    "key", ["no", "Y", "null", "1e3", "1_000", "2001-01-01", "0x1f", "", "-x", "a b", "a:b", "é\n"]
)
def test_a_key_that_could_be_taken_for_something_else_is_in_quotes(key: str) -> None:
    assert kyaml.written({key: 1}).splitlines()[2].startswith('  "')


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(_TREES)
def test_whoever_reads_yaml_reads_the_same(tree: object) -> None:
    assert yaml.safe_load(kyaml.written(tree)) == tree
