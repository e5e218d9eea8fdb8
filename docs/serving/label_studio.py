"""A machine-learning backend of Label Studio that asks a service of safecl, and teaches it what is
annotated.

    LABEL_STUDIO_URL=http://localhost:8080 LABEL_STUDIO_TOKEN=… \
        SAFECL_URL=http://localhost:8000 SAFECL_MODEL=pets \
        uvicorn --app-dir docs/serving label_studio:app --port 9090

The labelling interface has one <Image> and one <Choices>; its choices are the classes of the model.
"""

import base64
import os
from typing import Any
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import httpx
from fastapi import FastAPI, HTTPException

STUDIO = os.environ.get("LABEL_STUDIO_URL", "http://localhost:8080")
SERVICE = os.environ.get("SAFECL_URL", "http://localhost:8000")
MODEL = os.environ.get("SAFECL_MODEL", "model")
LEARN_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")

app = FastAPI(title="safecl for Label Studio")


def client(name: str, kind: str, **options: Any) -> httpx.AsyncClient:
    """``name``: of the variable that holds the token, if there is one."""
    token = os.environ.get(name)
    return httpx.AsyncClient(
        headers={"Authorization": f"{kind} {token}"} if token else {}, timeout=60, **options
    )


studio = client("LABEL_STUDIO_TOKEN", "Token")
service = client("SAFECL_TOKEN", "Bearer", base_url=SERVICE)


@app.get("/")
@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "UP", "model_class": "safecl"}


@app.post("/setup")
async def setup(given: dict[str, Any]) -> dict[str, Any]:
    names(given.get("schema") or "")
    found = (await service.get(f"/api/models/{MODEL}")).raise_for_status().json()
    return {"model_version": found["version"]}


@app.post("/predict")
async def predict(given: dict[str, Any]) -> dict[str, Any]:
    choices, image, key = names(given["label_config"])
    pictures = [
        base64.b64encode(await picture(task["data"][key])).decode() for task in given["tasks"]
    ]
    answer = await service.post(f"/api/models/{MODEL}/predict", json={"pictures": pictures})
    said = answer.raise_for_status().json()
    results = []
    for one in said["answers"]:
        known = "label" in one and not one["unknown"]
        value = {
            "from_name": choices,
            "to_name": image,
            "type": "choices",
            "value": {"choices": [str(one.get("label"))]},
        }
        score = one.get("probability") or 0.0
        results.append(
            {"model_version": said["version"], "score": score, "result": [value] if known else []}
        )
    return {"results": results, "model_version": said["version"]}


@app.post("/webhook", status_code=201)
async def webhook(given: dict[str, Any]) -> dict[str, Any]:
    labels = [
        choice
        for one in (given.get("annotation") or {}).get("result", [])
        if one.get("type") == "choices"
        for choice in one["value"]["choices"]
    ]
    if given.get("action") not in LEARN_FROM or len(labels) != 1:
        return {"status": "ok", "result": None}
    _, _, key = names(given["project"]["label_config"])
    data = base64.b64encode(await picture(given["task"]["data"][key])).decode()
    taught = {"pictures": [{"data": data, "label": labels[0]}]}
    answer = (await service.post(f"/api/models/{MODEL}/correct", json=taught)).raise_for_status()
    return {"status": "ok", "result": answer.json()["job"]}


def names(config: str) -> tuple[str, str, str]:
    """(name of the choices, name of the image, key of the task's data) in a labelling interface."""
    try:
        tree = ElementTree.fromstring(config)
        choices = next(iter(tree.iter("Choices")))
        image = next(one for one in tree.iter("Image") if one.get("name") == choices.get("toName"))
        return choices.attrib["name"], image.attrib["name"], image.attrib["value"].lstrip("$")
    except (ElementTree.ParseError, StopIteration, KeyError):
        raise HTTPException(
            422, "The labelling interface needs one <Image> and one <Choices> for it."
        ) from None


async def picture(place: str) -> bytes:
    """The bytes of a task's picture: from Label Studio alone, to which the token belongs."""
    url = urljoin(STUDIO, place)
    if urlsplit(url)[:2] != urlsplit(STUDIO)[:2]:
        raise HTTPException(
            422, f"{url[:200]} is not in Label Studio; import the pictures into it."
        )
    return (await studio.get(url)).raise_for_status().content
