"""A service in this process, on a model that learns in a moment."""

import base64
import contextlib
import io
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image


class Service:
    """A running service: ``client``, the ``path`` of its model and the pictures that can be sent to
    it.
    """

    def __init__(
        self, client: Any, path: Path, draw: Callable[..., Any], desk: Any, jobs: Any
    ) -> None:
        self.client = client
        self.path = path
        self.draw = draw
        self.desk = desk
        self.jobs = jobs

    def pictures(self, classes: str, each: int = 1, seed: int = 9) -> list[bytes]:
        return [png(image) for image in self.draw(classes, each, seed)[0]]

    def taught(
        self, classes: str, each: int = 1, seed: int = 9, label: str | None = ""
    ) -> dict[str, Any]:
        """A body that teaches; ``label``: of all, in place of their own."""
        labels = self.draw(classes, each, seed)[1]
        found = zip(self.pictures(classes, each, seed), labels, strict=True)
        return {
            "pictures": [
                {"data": text(p), "label": own if label == "" else label} for p, own in found
            ]
        }

    def job(self, what: str, body: Any = None) -> dict[str, Any]:
        """Have a job done, and give it when it has ended. A rollback takes back the last step."""
        body = {"step": self.about["rolls_back"]} if what == "rollback" and body is None else body
        answer = self.client.post(f"/api/models/m/{what}", json=body)
        assert answer.status_code == 202, answer.text
        return self.ended(answer.json()["job"]["id"])

    def ended(self, job: str) -> dict[str, Any]:
        until = time.monotonic() + 240
        while (found := self.client.get(f"/api/jobs/{job}").json())["state"] in (
            "waiting",
            "running",
        ):
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return dict(found)

    def ask(self, picture: bytes, **options: Any) -> Any:
        answer = self.client.post(
            "/api/models/m/predict",
            content=picture,
            headers={"Content-Type": "image/png"},
            params=options,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def about(self) -> dict[str, Any]:
        return dict(self.client.get("/api/models/m").json())

    @property
    def version(self) -> str:
        return str(self.about["version"])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The process that learns does nothing meanwhile."""
        os.kill(self.jobs._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.jobs._process.pid, signal.SIGCONT)


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(image)).save(file, "PNG")
    return file.getvalue()


def text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


@pytest.fixture(scope="package")
def model_file(tmp_path_factory: pytest.TempPathFactory, new_model: Any, lesson: Any) -> Path:
    """A model of the classes a to d that has learned two sessions; tests copy it."""
    path = tmp_path_factory.mktemp("model") / "m.safecl"
    model = new_model()
    for classes in ("abc", "d"):
        images, labels = lesson(classes, 8)
        files = []
        for i, image in enumerate(images):
            files.append(path.with_name(f"{classes}{i}.png"))
            files[-1].write_bytes(png(image))
        model.learn(files, labels)
    model.save(path)
    return path


@pytest.fixture(scope="package")
def start(lesson: Any) -> Callable[..., Any]:
    """``start(path, access)``: a context in which a service runs."""
    for needed in ("fastapi", "uvicorn", "httpx"):
        pytest.importorskip(needed)
    import httpx

    from safecl.serve.answering import Desk
    from safecl.serve.app import make_app, make_server
    from safecl.serve.jobs import Jobs
    from safecl.serve.limits import LIMITS, Access, Limits

    @contextlib.contextmanager
    def begin(
        path: Path,
        access: Access | None = None,
        make_desk: Any = Desk,
        limits: Limits = LIMITS,
        niceness: int = 0,  # other tests would starve what is trained behind them
    ) -> Iterator[Service]:
        paths = {"m": path}
        threads = torch.get_num_threads()
        desk = make_desk(paths, "cpu")
        jobs = Jobs(paths, "cpu", desk.reload, niceness)
        server = make_server(make_app(desk, jobs, access or Access(), limits))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(
                target=server.run, kwargs={"sockets": [listening]}, daemon=True
            )
            thread.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            try:
                with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                    yield Service(client, path, lesson, desk, jobs)
            finally:  # or a test that fails keeps the process of all tests from ending
                server.should_exit = True
                thread.join(60)
                torch.set_num_threads(threads)

    return begin


@pytest.fixture(scope="package")
def service(
    start: Callable[..., Any], model_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One for all tests, which may teach it."""
    path = tmp_path_factory.mktemp("served") / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path) as found:
        yield found
