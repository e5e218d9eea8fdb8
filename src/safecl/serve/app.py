"""The routes of the service, thin: what they call is in the other files of this folder."""

import asyncio
import json
import os
import pkgutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from queue import Full
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

import safecl
from safecl.classifier.modelfile.history import (
    as_label,
    check_auditable,
    check_labels,
    check_not_frozen,
)
from safecl.classifier.modelfile.store import ModelFile
from safecl.errors import SafeclError
from safecl.serve import protocol
from safecl.serve.about import brief, describe
from safecl.serve.jobs import ENDED, Jobs
from safecl.serve.limits import (
    LIMITS,
    OURS,
    Access,
    Gate,
    Limits,
    Refused,
    busy,
    check_size,
    check_step,
    pictures_of,
    refused,
)
from safecl.serve.protocol import PICTURE, Asking
from safecl.streams.labels import check_name

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
NEW: dict[str, Any] = {"classes": [], "frozen": False}  # of what has learned nothing yet
STOP_SECONDS = 10  # for requests that are being answered when the service stops
EVERY = 0.1  # seconds between looks at a job
ERRORS = (
    SafeclError,
    RequestValidationError,
    ValidationError,
    HTTPException,
    Full,
    ClientDisconnect,
    Exception,
)
TELEMETRY = "FASTAPI_OTEL_AUTO_CONFIGURE"  # the variable by which a person asks for traces
GONE = 499  # what is counted of a client that has hung up: nobody reads it
SAID = {"application/json": {"example": {"error": "One clear sentence."}}}
RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": {"description": "Refused", "content": SAID}}
RAW = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
ASKED = {
    "application/json": {"schema": Asking.model_json_schema(), "example": {"pictures": [PICTURE]}}
}
SENTENCES = {
    400: "The body is no JSON that can be read.",
    405: "Not with this verb.",
    404: "There is nothing here; GET /openapi.json lists what there is.",
}
Unknown = Annotated[
    float, Query(ge=0, lt=1, description="Share of known pictures that may be called unknown.")
]

Sets = Annotated[
    float | None, Query(gt=0, lt=1, description="Share of pictures whose set holds their class.")
]


class QuickRequest(Request):
    """Reads JSON three times as fast as starlette does: nobody else is answered meanwhile, and a
    thread would not change that.
    """

    async def json(self) -> Any:
        return from_json(await self.body())


class QuickRoute(APIRoute):
    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def quick(request: Request) -> Response:
            return await handle(QuickRequest(request.scope, request.receive))

        return quick


class Service:
    """What the routes share. ``desk``: answers (``answering.Desk``, or replicas of it)."""

    def __init__(self, desk: Any, jobs: Jobs) -> None:
        self.desk = desk
        self.jobs = jobs
        self.answered = 0
        self.seconds = 0.0

    def found(self, model: str) -> ModelFile | None:
        """The file that answers; None where nothing is learned yet."""
        if model not in self.desk.paths:
            raise Refused(404, "serve.model.missing")
        file: ModelFile | None = self.desk.file(model)
        return file

    def file(self, model: str, version: str | None = None) -> ModelFile:
        """The file that answers, if it is of this version."""
        file = self.found(model)
        if file is None:
            raise Refused(409, "serve.model.new", model=model)
        if version not in (None, file.version):
            raise Refused(404, "serve.version.missing", model=model, version=file.version)
        return file

    def health(self, may_read: bool) -> dict[str, Any]:
        """Whether all models answer from their files; whoever ``may_read`` is told why one does
        not.
        """
        faults = dict(self.desk.faults)
        drifts = {name: self.desk.drift(name)["told"] for name in self.desk.paths}
        drifts = {name: said for name, said in drifts.items() if said}
        told = {"drifts": drifts} if may_read and drifts else {}
        if not faults:
            return {"status": "UP", **told}
        return {"status": "DEGRADED", **({"faults": faults} if may_read else {}), **told}

    async def answers(
        self,
        model: str,
        pictures: Sequence[bytes],
        unknown: float,
        detail: bool = False,
        sets: float | None = None,
    ) -> Any:
        began = time.monotonic()
        said, answers, fault, drift = await self.desk.ask(model, pictures, unknown, detail, sets)
        if all("error" in one for one in answers):
            raise Refused(422, "serve.pictures.none-readable", reason=answers[0]["error"])
        self.answered = self.answered + 1
        self.seconds = self.seconds + time.monotonic() - began
        more = {"fault": fault or self.desk.faults.get(model), "drift": drift["told"]}
        return said, answers, {key: value for key, value in more.items() if value}

    async def teach(self, model: str, what: str, given: Any) -> dict[str, Any]:
        """A job, once all of its pictures are known to be pictures and its labels to be names."""
        first = what == "learn" and self.found(model) is None
        header = NEW if first else self.file(model).header
        sent = getattr(given, "pictures", ())
        more = given.model_dump(exclude={"pictures"})
        pictures = await asyncio.to_thread(pictures_of, [getattr(one, "data", one) for one in sent])
        labels = [one.label for one in sent if not isinstance(one, str)]
        labels = [None if label is None else as_label(header, label) for label in labels]
        if what == "rollback":
            check_step(header, more["step"])
        elif what == "audit":
            check_auditable(header)
        elif what in ("learn", "correct"):
            check_not_frozen(header)
            check_name(more.get("name", what), "session")
            check_labels(
                header["classes"], [label for label in labels if label is not None], "the request"
            )
        if labels and len(set(zip(pictures, labels, strict=True))) > len(set(pictures)):
            raise Refused(422, "serve.picture.two-labels")
        views = await self.desk.decode(pictures, 1, 1)
        unread = {i: found for i, found in enumerate(views) if isinstance(found, str)}
        for place, reason in unread.items():
            raise Refused(422, "serve.job.picture", place=place, reason=reason).of(unread)
        return {
            "job": await asyncio.to_thread(self.jobs.add, model, what, pictures, labels, **more)
        }


def make_app(desk: Any, jobs: Jobs, access: Access, limits: Limits = LIMITS) -> Gate:
    """The service; it closes ``jobs`` and ``desk`` when it stops."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(jobs.close)
        await asyncio.to_thread(desk.close)

    app = FastAPI(
        title="safecl",
        version=safecl.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        responses=RESPONSES,
        description="Models that answer, and keep learning.",
        redirect_slashes=False,
        # some versions send traces to where the environment names a collector, unless told not to
        telemetry={"auto_configure": os.environ.get(TELEMETRY, "").lower() == "true"},
    )
    app.router.route_class = QuickRoute
    service = Service(desk, jobs)
    gate = Gate(app, access, limits)
    for add in (add_models, add_jobs, protocol.add_routes, add_page):
        add(app, service)
    for kind in ERRORS:
        app.add_exception_handler(kind, explained)

    @app.get("/health")
    async def health(request: Request) -> dict[str, Any]:
        return service.health(request.state.may_read)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        lines = [
            f'requests_total{{route="{r}",status="{s}"}} {n}'
            for (r, s), n in sorted(gate.requests.items())
        ]
        lines += [f'jobs{{state="{state}"}} {number}' for state, number in jobs.counts().items()]
        lines += [
            f"answer_seconds_sum {service.seconds:.6f}",
            f"answer_seconds_count {service.answered}",
        ]
        for name in desk.paths:
            drift = desk.drift(name)
            model = f"{{model={json.dumps(name, ensure_ascii=False)}}}"
            lines.append(f"drift_alarm{model} {int(drift['alarm'])}")
            lines.append(f"drift_evidence{model} {drift['evidence']:.6g}")
        gauges = {"requests_inside": gate.inside.total(), "bytes_held": gate.held, **desk.gauges()}
        gauges |= {"models_degraded": len(desk.faults)}
        return "".join(
            f"safecl_{line}\n" for line in [*lines, *(f"{key} {n}" for key, n in gauges.items())]
        )

    return gate


def add_models(app: FastAPI, service: Service) -> None:
    """What models say."""
    desk = service.desk

    @app.get("/api/models")
    async def every() -> dict[str, Any]:
        return {
            "models": [
                brief(name, service.found(name), desk.faults.get(name)) for name in desk.paths
            ]
        }

    @app.get("/api/models/{model}")
    async def one(request: Request, model: str) -> dict[str, Any]:
        file = service.found(model)
        fault = desk.faults.get(model)
        said = await asyncio.to_thread(describe, model, file, fault, request.state.may_change)
        return {**said, "drift": desk.drift(model)}

    @app.get("/api/models/{model}/file", response_class=FileResponse)
    async def whole(model: str) -> FileResponse:
        service.file(model)
        return download(desk.paths[model], desk.paths[model].name)

    @app.post(
        "/api/models/{model}/predict",
        openapi_extra={"requestBody": {"required": True, "content": {**RAW, **ASKED}}},
    )
    async def predict(
        request: Request,
        model: str,
        unknown: Unknown = 0.05,
        detail: bool = False,
        sets: Sets = None,
    ) -> dict[str, Any]:
        service.file(model)
        version, answers, more = await service.answers(
            model, await _pictures(request, True), unknown, detail, sets
        )
        return {"version": version, "answers": answers, **more}

    @app.post(
        "/api/models/{model}/heat_map",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
        openapi_extra={"requestBody": {"required": True, "content": RAW}},
    )
    async def heat_map(request: Request, model: str, label: str | None = None) -> Response:
        service.file(model)
        (picture,) = await _pictures(request, False)
        return Response(await desk.heat_map(model, picture, label), media_type="image/png")


def add_jobs(app: FastAPI, service: Service) -> None:
    """What changes models, and takes its time."""
    jobs = service.jobs
    Job = Annotated[dict[str, Any], Depends(jobs.find)]

    def add(what: str, body: Any) -> None:
        @app.post(f"/api/models/{{model}}/{what}", status_code=202, name=what)
        async def job(model: str, given: body) -> Any:
            return await service.teach(model, what, given)

    for what, body in protocol.JOBS.items():
        add(what, body)

    @app.get("/api/jobs")
    async def every() -> dict[str, Any]:
        return {"jobs": [jobs.told(job) for job in list(jobs.all.values())]}

    @app.get("/api/jobs/{job}")
    async def one(job: Job) -> dict[str, Any]:
        return jobs.told(job)

    @app.get("/api/jobs/{job}/file", response_class=FileResponse)
    async def exported(job: Job) -> FileResponse:
        return download(jobs.exported(job), f"{job['model']}.onnx")

    @app.delete("/api/jobs/{job}")
    async def stop(job: Job) -> dict[str, Any]:
        await asyncio.to_thread(jobs.stop, job)
        return jobs.told(job)

    @app.get("/api/jobs/{job}/events", response_class=EventSourceResponse)
    async def events(job: Job) -> AsyncIterator[ServerSentEvent]:
        last = None
        while last is None or (last["state"] not in ENDED and not jobs.closed.is_set()):
            if (now := jobs.told(job)) != last:
                yield ServerSentEvent(
                    event="end" if now["state"] in ENDED else "progress", data=now
                )
            last = now
            await asyncio.sleep(EVERY)


def add_page(app: FastAPI, service: Service) -> None:
    """The files of the page, read once: no path comes from a request."""
    files = {
        path.name: path.read_bytes()
        for path in Path(__file__).with_name("page").iterdir()
        if path.is_file()
    }

    @app.get("/", include_in_schema=False)
    @app.get("/page/{file}", include_in_schema=False)
    async def read(file: str = "index.html") -> Response:
        if file not in files:
            raise Refused(404, "serve.page.missing")
        return Response(files[file], media_type=KINDS.get(file.rpartition(".")[2]))


def download(path: Path, name: str) -> FileResponse:
    """A file to be kept, under a name."""
    if not path.is_file():
        raise Refused(404, "serve.export.gone")
    return FileResponse(path, media_type="application/octet-stream", filename=name)


async def explained(request: Request, error: Exception) -> Response:
    """Whatever goes wrong is one sentence."""
    if isinstance(error, HTTPException) and isinstance(error.__cause__, Refused | ClientDisconnect):
        error = error.__cause__  # while FastAPI read the body
    if isinstance(error, ClientDisconnect):
        return Response(status_code=GONE)
    if isinstance(error, Full):
        return refused(busy())
    if isinstance(error, SafeclError):
        return refused(error)
    if isinstance(error, HTTPException):
        said = SENTENCES.get(error.status_code, str(error.detail))
        return JSONResponse({"error": said}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError | ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "body"
        wrong = Refused(422, "serve.request.wrong", where=where, reason=str(first["msg"])[:200])
        return refused(wrong)
    return JSONResponse({"error": OURS}, 500)


async def _pictures(request: Request, several: bool) -> list[bytes]:
    """The picture that a body is, or, where it may hold ``several``, those in its JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if several and kind == "application/json":
        body = await request.body()
        return await asyncio.to_thread(
            lambda: pictures_of(Asking.model_validate_json(body).pictures)
        )
    if not kind.startswith("image/") and kind != "application/octet-stream":
        raise Refused(415, "serve.request.kind")
    check_size(data := await request.body(), "The body")
    return [data]


class Patient(H11Protocol):
    """HTTP/1.1; a connection is closed on which the head of a request does not arrive in time.

    The server's own limit is on idle connections alone, and one byte now and then is not idle.
    """

    def __init__(self, head_seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self.head_seconds = head_seconds
        self.head: asyncio.TimerHandle | None = None  # closes the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        elif self.head is not None:
            self.head.cancel()
            self.head = None

    def _expect_head(self) -> None:
        if self.head is None:
            self.head = self.loop.call_later(self.head_seconds, self.transport.close)


def open_service(
    paths: Mapping[str, Path], device: str, access: Access, replicas: int | None
) -> uvicorn.Server:
    """What answers, and learns, once it is run, until SIGINT or SIGTERM; ``replicas``: how many, on
    a Ray cluster.
    """
    name = "answering:Desk" if replicas is None else "cluster:Replicas"  # which does without torch
    given = () if replicas is None else (replicas,)
    desk = pkgutil.resolve_name(f"safecl.serve.{name}")(paths, device, *given)
    return make_server(make_app(desk, Jobs(paths, device, desk.reload), access))


def make_server(app: Gate) -> uvicorn.Server:
    protocol: Any = partial(Patient, app.limits.head_seconds)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=32768,
    )
    return uvicorn.Server(config)
