"""The kubeconfig of the last server: commands may read it while a server that starts writes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykueue import paths


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_reader_never_sees_half_of_it(home: Path) -> None:
    names = [home / ("a" * 200), home / "b"]
    paths.remember(names[0])

    def write() -> None:
        for number in range(500):
            paths.remember(names[number % 2])

    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(write)
        found = {paths.kubeconfig()}
        while not writing.done():
            found.add(paths.kubeconfig())
    assert found <= set(names)
    assert [path.name for path in (home / ".pykueue").iterdir()] == ["last-kubeconfig"]


@pytest.mark.parametrize("content", [None, ""])
def test_without_a_record_it_is_that_of_the_default_directory(home: Path, content: str | None) -> None:
    if content is not None:
        (home / ".pykueue").mkdir()
        (home / ".pykueue" / "last-kubeconfig").write_text(content)
    assert paths.kubeconfig() == home / ".pykueue" / "kubeconfig"


def test_a_home_that_is_not_writable_is_no_error(home: Path) -> None:
    (home / ".pykueue").write_text("a file")
    paths.remember(home / "kubeconfig")
    assert paths.kubeconfig() == home / ".pykueue" / "kubeconfig"
