"""The table of the comparison with Kueue: made of one run, or of the files of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import peer

from cluster.assets import partners


def figures(wall_seconds: float) -> dict[str, Any]:
    names = (
        "highest_priority_mean_seconds",
        "highest_priority_p99_seconds",
        "requests_per_admission",
        "manager_cpu_ms_per_admission",
        "manager_peak_memory_mib",
        "server_cpu_ms_per_admission",
        "evictions",
        "lost_cpu_seconds",
    )
    return {**dict.fromkeys(names, 0), "wall_seconds": wall_seconds, "finished": 3, "workloads": 3}


def saved(path: Path, load: str, mine: list[float], other: list[float], kueue: str = partners.KUEUE.version) -> str:
    runs = {peer.OURS: [figures(each) for each in mine], peer.KUEUE: [figures(each) for each in other]}
    path.write_text(json.dumps({peer.KUEUE: kueue, "loads": {load: runs}}))
    return str(path)


def test_loads_that_were_measured_one_by_one_make_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{peer.BEGIN}\nold figures\n{peer.END}\nafter\n")
    monkeypatch.setattr(peer, "PAGE", page)
    monkeypatch.setattr(peer, "ROOT", tmp_path)
    files = [saved(tmp_path / "a", "baseline", [1, 3, 2], [2, 4, 8]), saved(tmp_path / "b", "deep", [5], [10])]
    assert peer.main(["--loads=", f"--earlier={','.join(files)}", "--write"]) == 0
    text = page.read_text()
    assert (text[:7], text[-6:]) == ("before\n", "after\n")
    assert "old figures" not in text
    assert f", Kueue {partners.KUEUE.version}, " in text
    assert "| baseline, 3 rounds | wall s | 2 | 4 | 0.50 (0.25 to 0.75) |" in text
    assert "| deep, 1 round | wall s | 5 | 10 | 0.50 (0.50 to 0.50) |" in text
    assert "| deep, 1 round | evictions | 0 | 0 | – |" in text
    assert text.split(peer.BEGIN)[1].split(peer.END)[0].strip() == capsys.readouterr().out.strip()


def test_figures_beside_another_version_of_kueue_are_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "a", "baseline", [1], [2], kueue="v0.0.1")
    with pytest.raises(SystemExit, match=rf"{file} has figures beside Kueue v0.0.1, not {partners.KUEUE.version}"):
        peer.main(["--loads=", f"--earlier={file}"])


def test_page_names_the_version_of_kueue_that_is_built() -> None:
    assert f"Kueue's manager from its published Go module, {partners.KUEUE.version} " in peer.PAGE.read_text()
