"""Replicas on two machines answer as one desk does, and take over what was learned without a failed
request.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.modelfile.store import ModelFile

from .conftest import Service


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Desks on a cluster of two machines with one core each, a replica on each."""
    pytest.importorskip(
        "ray.serve",
        reason="Ray Serve is not installed; the extra ray brings it",
        exc_type=ImportError,
    )
    from ray.cluster_utils import Cluster

    from safecl.serve.cluster import Replicas

    cluster = Cluster()
    for _ in range(2):
        cluster.add_node(num_cpus=1, include_dashboard=False)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield lambda paths, device: Replicas(paths, device, 2)
    cluster.shutdown()


@pytest.mark.slow
def test_two_machines_answer_and_swap_versions_without_a_failed_request(
    replicas: Callable[..., Any], start: Callable[..., Any], model_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path, make_desk=replicas) as service:
        assert isinstance(service, Service)
        pictures = service.pictures("abcd", 2)
        found = list[Any]()
        over = threading.Event()
        bad = service.client.post(
            "/api/models/m/predict", content=b"none", headers={"Content-Type": "image/png"}
        )
        assert bad.status_code == 422 and "not a picture" in bad.json()["error"]

        def ask() -> None:
            while not over.is_set():
                for picture in pictures:
                    found.append(service.ask(picture))

        threads = [threading.Thread(daemon=True, target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        before = service.version
        job = service.job("correct", service.taught("q", 3, seed=2))
        over.set()
        for thread in threads:
            thread.join()
        classes = {before: set("abcd"), job["version"]: set("abcdq")}
        assert (
            job["state"] == "done" and service.version == ModelFile(path).version == job["version"]
        )
        assert len(found) > 20 and {one["version"] for one in found} <= classes.keys()
        for one in found:
            assert {label for label, _ in one["answers"][0]["nearest"]} == classes[one["version"]]
        assert {service.ask(service.pictures("q", 3, seed=2)[0])["version"] for _ in range(10)} == {
            job["version"]
        }
        path.write_bytes(b"damaged")
        while service.client.get("/health").json()["status"] != "DEGRADED":
            time.sleep(0.1)
        said = service.ask(pictures[0])
        assert (
            said["version"] == job["version"]
            and "damaged" in said["fault"] == service.about["fault"]
        )
