"""What bodies say; and the Open Inference Protocol, version 2, as KServe's clients speak it."""

import asyncio
from typing import Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

import safecl
from safecl.lines import as_json
from safecl.serve.limits import Refused, pictures_of

MAX_ASKED = 256
MAX_TAUGHT = 4096  # pictures of a request
PICTURE = "/9j/4AAQSkZJRg…"  # in examples
INPUT = {"name": "pictures", "datatype": "BYTES", "shape": [-1]}
OUTPUTS = {"label": "BYTES", "probability": "FP32", "unknown": "BOOL"}
SET = "set"  # the output of a request with the parameter ``sets``: JSON lists of classes


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Asking(Body):
    pictures: list[str] = Field(min_length=1, max_length=MAX_ASKED, examples=[[PICTURE]])


class Queueing(Body):
    pictures: list[str] = Field(min_length=1, max_length=MAX_TAUGHT, examples=[[PICTURE]])
    count: int = Field(20, ge=1, le=MAX_TAUGHT)


class Auditing(Body):
    count: int = Field(20, ge=1, le=MAX_TAUGHT)


class Corrected(Body):
    data: str = Field(examples=[PICTURE])
    label: str | int | None = Field(examples=["cat", None])


class Taught(Corrected):
    label: str | int = Field(examples=["cat"])


class Learning(Body):
    name: str = "pictures"
    pictures: list[Taught] = Field(min_length=1, max_length=MAX_TAUGHT)


class Correcting(Body):
    pictures: list[Corrected] = Field(min_length=1, max_length=MAX_TAUGHT)


class Exporting(Body):
    precision: Literal["fp32", "fp16"] = "fp32"


class RollingBack(Body):
    step: str = Field(description="Its id in the history.", examples=["3f2a9c01d7be"])


# what each is given
JOBS = {
    "learn": Learning,
    "correct": Correcting,
    "rollback": RollingBack,
    "queue": Queueing,
    "audit": Auditing,
    "export": Exporting,
}


class Input(Body):
    name: str = Field(examples=["pictures"])
    datatype: str = Field(examples=["BYTES"])
    shape: list[int] = Field(examples=[[1]])
    parameters: dict[str, Any] = Field(default_factory=dict, examples=[{"content_type": "base64"}])
    data: list[str] = Field(min_length=1, max_length=MAX_ASKED, examples=[[PICTURE]])


class Inference(Body):
    id: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict, examples=[{"unknown": 0.05}])
    inputs: list[Input] = Field(min_length=1, max_length=1)
    outputs: list[dict[str, Any]] = Field(default_factory=list, examples=[[{"name": "label"}]])


def add_routes(app: FastAPI, service: Any) -> None:
    """The routes of the protocol; ``service``: see ``app.Service``."""

    @app.get("/v2/health/live")
    @app.get("/v2/health/ready")
    async def health(request: Request) -> dict[str, Any]:
        return {"live": True, "ready": True, **service.health(request.state.may_read)}

    @app.get("/v2")
    async def server() -> dict[str, Any]:
        return {"name": "safecl", "version": safecl.__version__, "extensions": []}

    @app.get("/v2/models/{model}")
    @app.get("/v2/models/{model}/versions/{version}")
    @app.get("/v2/models/{model}/ready")
    @app.get("/v2/models/{model}/versions/{version}/ready")
    async def metadata(model: str, version: str | None = None) -> dict[str, Any]:
        now = service.file(model, version).version
        fault = service.desk.faults.get(model)
        outputs = [
            {"name": name, "datatype": kind, "shape": [-1]} for name, kind in OUTPUTS.items()
        ]
        said = {"name": model, "versions": [now], "platform": "safecl", "ready": True}
        more = {"parameters": {"fault": fault}} if fault else {}
        return {**said, "inputs": [INPUT], "outputs": outputs, **more}

    @app.post("/v2/models/{model}/infer")
    @app.post("/v2/models/{model}/versions/{version}/infer")
    async def infer(model: str, asked: Inference, version: str | None = None) -> dict[str, Any]:
        service.file(model, version)
        given = asked.inputs[0]
        unknown = asked.parameters.get("unknown", 0.05)
        if given.datatype != "BYTES" or given.shape not in (
            [len(given.data)],
            [len(given.data), 1],
        ):
            raise Refused(422, "serve.protocol.input")
        if not isinstance(unknown, int | float) or not 0 <= unknown < 1:
            raise Refused(422, "serve.protocol.unknown")
        sets = asked.parameters.get("sets")
        if sets is not None and (not isinstance(sets, int | float) or not 0 < sets < 1):
            raise Refused(422, "serve.protocol.sets")
        there = OUTPUTS | ({} if sets is None else {SET: "BYTES"})
        wanted = [str(one.get("name")) for one in asked.outputs] or list(there)
        if strange := [name for name in wanted if name not in there]:
            raise Refused(
                422, "serve.protocol.output", output=strange[0][:100], outputs=", ".join(there)
            )
        pictures = await asyncio.to_thread(pictures_of, given.data)
        share = None if sets is None else float(sets)
        now, answers, said = await service.answers(model, pictures, float(unknown), sets=share)
        if version not in (None, now):
            raise Refused(404, "serve.protocol.learned", model=model, version=now)
        for i, answer in enumerate(answers):
            if "error" in answer:
                raise Refused(422, "serve.protocol.picture", place=i, reason=answer["error"])
        found = {name: [_flat(one[name]) for one in answers] for name in wanted}
        outputs = [
            {"name": n, "datatype": there[n], "shape": [len(given.data)], "data": found[n]}
            for n in wanted
        ]
        more = {} if asked.id is None else {"id": asked.id}
        more |= {"parameters": said} if said else {}  # where the protocol has room for more
        return {"model_name": model, "model_version": now, **more, "outputs": outputs}


def _flat(value: Any) -> Any:
    """As a tensor can hold it."""
    return as_json(value) if isinstance(value, list) else value
