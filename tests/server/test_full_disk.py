"""A disk that is full or cannot be written: writes are refused in a sentence, reads go on, and it heals by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.errors import UsageError
from kubeserver.serve import ServerSettings
from kubeserver.storage import objects
from pykueue.app.server import kueue_parts
from server.conftest import CONFIG_MAPS, Client, Running, config_map, parts
from waiting import until

PAYLOAD = {"x": "y" * 20_000}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "RECOVERY_SECONDS", 0.05)


def is_ready(client: Client) -> bool:
    return client.get("/readyz").code == 200


def survives(server: Running, break_it: Callable[[Any], None], mend_it: Callable[[Any], None]) -> None:
    """Write until it fails; then read, mend and write again."""
    client = server.client()
    journal = server.serving.embedded.objects._journal
    acknowledged = {"before": client.post(CONFIG_MAPS, config_map("before")).ok()["metadata"]["resourceVersion"]}
    watched = client.watch(CONFIG_MAPS, timeoutSeconds=300)
    assert next(watched)["object"]["metadata"]["name"] == "before"
    server.call(on_the_loop(lambda: break_it(journal)))
    for index in range(1_000):
        made = client.post(CONFIG_MAPS, config_map(f"n{index}", PAYLOAD))
        if made.code != 201:
            break
        acknowledged[f"n{index}"] = made.ok()["metadata"]["resourceVersion"]
    refused = made.refused(503)
    assert refused["reason"] == "ServiceUnavailable"
    assert "may or may not be kept" in refused["message"]
    later = client.post(CONFIG_MAPS, config_map("later"))
    assert "nothing can be written at present" in later.refused(503)["message"]
    assert later.headers["retry-after"] == "1", "this one was not even tried, so it is safe to repeat"
    assert b"[-]store failed: " in client.get("/readyz").body
    assert client.get("/readyz").code == client.get("/readyz/store").code == 503
    assert client.get("/livez").code == 200

    def listed() -> dict[str, str]:
        items = client.get(CONFIG_MAPS).ok()["items"]
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    assert listed() == acknowledged, "reading goes on, and shows what was acknowledged and nothing else"
    server.call(on_the_loop(lambda: mend_it(journal)))
    until(lambda: is_ready(client))
    acknowledged["later"] = client.post(CONFIG_MAPS, config_map("later")).ok()["metadata"]["resourceVersion"]
    assert listed() == acknowledged
    names = [next(watched)["object"]["metadata"]["name"] for _ in range(len(acknowledged) - 1)]
    assert names == list(acknowledged)[1:], "a watch delivers every committed write, once and in order"


async def on_the_loop(act: Callable[[], None]) -> None:
    act()


def test_a_full_disk(tmp_path: Path) -> None:
    def free_space(journal: Any) -> None:
        journal._max_bytes = 0

    settings = ServerSettings(data_dir=tmp_path, max_bytes=1024 * 1024)
    with Running(settings, parts()) as server:
        survives(server, lambda journal: None, free_space)
    with Running(ServerSettings(data_dir=tmp_path), parts()) as again:
        again.client().get(f"{CONFIG_MAPS}/later").ok()


def test_a_disk_that_is_full_at_the_first_start_is_named_in_one_sentence(tmp_path: Path) -> None:
    """Space for the tables, but not for the objects that a new server begins with."""
    settings = ServerSettings(data_dir=tmp_path, max_bytes=1)
    with pytest.raises(UsageError) as refused, Running(settings, kueue_parts()):
        pass
    assert str(refused.value) == f"the data directory cannot be used: {tmp_path}: database or disk is full"


def test_a_disk_that_has_become_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses as it does on a file system that was remounted read-only; every reopened connection does so, too."""
    reopened: list[Any] = []

    def make_read_only(journal: Any) -> None:
        original = journal._open

        def read_only(cluster_id: str) -> Any:
            connection = original(cluster_id)
            connection.execute("PRAGMA query_only = 1")
            return connection

        journal._connection.execute("PRAGMA query_only = 1")
        reopened.append(original)
        monkeypatch.setattr(journal, "_open", read_only)

    with Running(ServerSettings(data_dir=tmp_path), parts()) as server:
        survives(server, make_read_only, lambda journal: monkeypatch.setattr(journal, "_open", reopened[0]))
