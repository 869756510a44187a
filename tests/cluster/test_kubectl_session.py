"""kubectl gives the same output with the embedded server and with the real one."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster import kubectl_session as session
from cluster import real
from kubeserver.serve import ServerSettings
from pykueue.app.bare_server import bare_parts
from server.conftest import Running

SESSION = Path(__file__).with_name("kubectl_session.txt")
CRDS = Path(__file__).resolve().parents[2] / "deploy" / "crds"


def person(home: Path, server: real.Client) -> session.Person:
    home.mkdir()
    (home / "kubeconfig").write_text(server.kubeconfig())
    shutil.copytree(CRDS, home / "crds")
    return session.Person(home)


@pytest.mark.cluster
@pytest.mark.timeout(1500)  # hundreds of commands, each of which takes as long as the machine is busy
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_session_output_equals_the_real_server(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path / "data")
    with real.started() as theirs, Running(settings, bare_parts()) as server, ThreadPoolExecutor(2) as threads:
        credentials = server.serving.credentials
        ours = real.Client(server.serving.url, credentials.admin_token, credentials.ca)
        people = (person(tmp_path / "real", theirs), person(tmp_path / "ours", ours))
        wrong: list[str] = []
        unused = set(session.EXPLAINED)
        for step in session.read(SESSION):
            left, right = threads.map(lambda one, step=step: one.do(step), people)
            for line in session.differences(left, right):
                why = session.explanation(step.command, line)
                if why is None:
                    wrong += [f"$ {step.command}", f"    {line}"]
                unused.discard(why)
    assert not wrong, "\n".join(dict.fromkeys(wrong))
    assert not unused, "explanations that nothing needs:\n" + "\n".join(row.why for row in unused)
