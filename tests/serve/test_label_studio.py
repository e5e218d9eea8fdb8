"""The example of a backend for Label Studio, by the requests that Label Studio documents."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from .conftest import Service

EXAMPLE = Path(__file__).parents[2] / "docs" / "serving" / "label_studio.py"
CONFIG = """<View><Image name="image" value="$image"/>
<Choices name="choice" toName="image"><Choice value="a"/><Choice value="b"/></Choices></View>"""


def test_label_studio_asks_and_teaches(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    httpx = pytest.importorskip("httpx")
    from starlette.testclient import TestClient

    url = str(service.client.base_url)
    monkeypatch.setenv("SAFECL_URL", url)
    monkeypatch.setenv("SAFECL_MODEL", "m")
    spec = importlib.util.spec_from_file_location("label_studio", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = service.pictures("a")[0]
    new = service.pictures("w", 1, seed=6)[0]
    files = {"/data/upload/1/a.png": known, "/data/upload/1/w.png": new}
    module.studio = httpx.AsyncClient(
        transport=httpx.MockTransport(
            lambda asked: httpx.Response(200, content=files[asked.url.path])
        )
    )
    with TestClient(module.app) as studio:
        assert studio.get("/health").json()["status"] == "UP"
        setup = {
            "project": "1.1700000000",
            "schema": CONFIG,
            "hostname": "http://localhost:8080",
            "access_token": "x",
        }
        assert studio.post("/setup", json=setup).json() == {"model_version": service.version}
        task = {"id": 1, "data": {"image": "/data/upload/1/a.png"}}
        asked = {
            "tasks": [task],
            "label_config": CONFIG,
            "project": "1.1700000000",
            "params": {"context": None},
        }
        said = studio.post("/predict", json=asked).json()
        (one,) = said["results"]
        answer = service.ask(known)["answers"][0]
        assert one["model_version"] == said["model_version"] == service.version
        assert one["score"] == answer["probability"]
        value = {
            "from_name": "choice",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [answer["label"]]},
        }
        assert one["result"] == ([] if answer["unknown"] else [value])
        annotation = {"id": 5, "result": [{**value, "value": {"choices": ["wren"]}}]}
        sent = {
            "action": "ANNOTATION_CREATED",
            "project": {"id": 1, "label_config": CONFIG},
            "annotation": annotation,
            "task": {"id": 2, "data": {"image": "/data/upload/1/w.png"}},
        }
        taught = studio.post("/webhook", json=sent)
        assert taught.status_code == 201 and taught.json()["status"] == "ok"
        assert service.ended(taught.json()["result"]["id"])["state"] == "done"
        assert "wren" in {
            one["label"] for one in service.client.get("/api/models/m").json()["classes"]
        }
        assert (
            studio.post("/webhook", json={**sent, "action": "PROJECT_UPDATED"}).json()["result"]
            is None
        )
        asked["tasks"] = [{"id": 1, "data": {"image": "http://169.254.169.254/latest"}}]
        assert studio.post("/predict", json=asked).status_code == 422
    assert service.job("rollback")["state"] == "done"
