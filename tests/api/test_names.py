"""Names that are derived, and labels and annotations that other programs depend on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubemachinery import meta
from pykueue.api import labels, names

LONG = "-".join(["a-rather-long-name-of-a-job"] * 12)


def test_a_workload_is_called_after_the_kind_and_name_of_its_owner_with_a_hash_over_all_that_identifies_it() -> None:
    assert names.workload_name("Job", "batch", "name", "uid") == "job-name-ef3a1"
    assert names.workload_name("Job", "batch", "name", "uid", extra="1") == "job-name-2514c"
    assert names.workload_name("Job", "batch", "name", "other") != names.workload_name("Job", "batch", "name", "uid")
    assert names.workload_name("Job", "other", "name", "uid") != names.workload_name("Job", "batch", "name", "uid")


@pytest.mark.parametrize(("short", "longest"), [(False, 253), (True, 63)])
def test_a_long_name_is_cut_and_its_hash_is_over_the_whole(short: bool, longest: int) -> None:
    cut = names.workload_name("Job", "batch", LONG, "uid", short=short)
    assert len(cut) == longest
    assert cut.startswith("job-a-rather-long-name")
    assert cut[:-5] == names.workload_name("Job", "batch", LONG + "x", "uid", short=short)[:-5]
    assert cut != names.workload_name("Job", "batch", LONG + "x", "uid", short=short)
    assert cut[-5:] == names.workload_name("Job", "batch", LONG, "uid")[-5:]
    assert bool(meta.check_label_value(cut)) is not short


def test_a_provisioning_request_is_called_after_workload_check_and_attempt() -> None:
    assert names.provisioning_request_name("wl", "check", 2) == "wl-check-2"
    assert names.provisioning_template_name("wl-check-2", "main") == "ppt-wl-check-2-main"
    assert len(names.provisioning_request_name("w" * 250, "check", 2)) == 253
    # 247 characters leave space for a hash and need none.
    assert names.provisioning_request_name("w" * 239, "check", 2) == "w" * 239 + "-check-2"


def test_the_attempt_is_read_back_from_the_name() -> None:
    assert names.provisioning_request_attempt("wl-check-12", "wl", "check") == 12
    assert names.provisioning_request_attempt("wl-check-x-12", "wl", "check") is None
    assert names.provisioning_request_attempt("wl-check-1", "w", "check") is None
    long = "w" * 250
    assert names.provisioning_request_attempt(names.provisioning_request_name(long, "check", 3), long, "check") == 3
    assert names.provisioning_request_attempt(names.provisioning_request_name(long, "other", 3), long, "check") is None


def test_every_mark_of_the_public_appendix_is_a_constant_here() -> None:
    features = Path(__file__).parents[3] / "shared" / "reference" / "features.md"
    if not features.exists():
        pytest.skip("the public appendix of names is not beside this checkout")
    text = features.read_text()
    section = text[text.index("### 7.1 Labels") : text.index("### 7.3 Condition types")]
    section = re.sub(r"Retired:.*", "", section)
    annotations = re.search(r"Annotations, all under.*", section)
    assert annotations is not None
    listed = {f"kueue.x-k8s.io/{word}" for word in re.findall(r"`([a-z-]+)`", annotations[0])}
    listed |= set(re.findall(r"`([a-z.0-9-]+/[a-z-]+)`", section))
    known = {value for value in vars(labels).values() if isinstance(value, str)}
    assert listed - known == set()
