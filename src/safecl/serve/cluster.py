"""Replicas of the desk on a Ray cluster, behind one process that takes requests and one that
learns. No torch here.
"""

import contextlib
import importlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safecl.classifier.modelfile.store import ModelFile
from safecl.errors import SafeclError
from safecl.process import own_job
from safecl.runtime.drift import Drift
from safecl.serve.faults import Faults
from safecl.serve.jobs import watch

MAX_ONGOING = 256  # requests of a replica


class Replica:
    """A desk on one machine of the cluster; the files are on storage that all of its machines
    share.
    """

    def __init__(self, paths: Mapping[str, Path], device: str) -> None:
        from safecl.serve.answering import Desk

        self.desk = Desk(paths, device, watching=False)

    def reconfigure(self, versions: dict[str, str]) -> None:
        """Ray calls it in one replica after the other; each answers meanwhile."""
        for name in versions:
            with contextlib.suppress(Exception):  # which the desk keeps, and tells with its answers
                self.desk.reload(name)

    async def call(self, what: str, *given: Any) -> Any:
        """What a method of the desk gives, or its refusal."""
        try:
            return True, await getattr(self.desk, what)(*given)
        except SafeclError as error:
            return False, error


class Replicas:
    """As ``Desk``, by replicas on the cluster at RAY_ADDRESS, or on one that is started here."""

    def __init__(self, paths: Mapping[str, Path], device: str, count: int) -> None:
        try:
            ray: Any = importlib.import_module("ray")
            serve: Any = importlib.import_module("ray.serve")
        except ImportError:
            raise SafeclError("serve.ray.missing") from None
        self.paths = dict(paths)
        self._ray = ray
        self._serve = serve
        self._files = {name: ModelFile(path) for name, path in self.paths.items()}
        self._reloading = threading.Lock()
        self._closed = threading.Event()
        self._own = Faults(self.paths)
        # of the replica that has answered last
        self._theirs: dict[str, str | None] = {}
        self._drifts: dict[str, dict[str, Any]] = {}
        address = os.environ.get("RAY_ADDRESS", "local")
        ray.init(address, log_to_driver=False, logging_level="ERROR", job_config=own_job(ray))
        serve.start(proxy_location="Disabled")  # requests come in here
        gpus = (
            min(1.0, ray.cluster_resources().get("GPU", 0) / count)
            if device in ("auto", "cuda")
            else 0
        )
        options = {
            "ray_actor_options": {"num_cpus": 1, "num_gpus": gpus},
            "max_ongoing_requests": MAX_ONGOING,
        }
        self._deployment = serve.deployment(Replica, name="safecl", num_replicas=count, **options)
        self._given = self.paths, device
        self._handle = self._run()
        threading.Thread(
            target=watch, args=(self.paths, self.reload, self._closed), daemon=True
        ).start()

    def _run(self) -> Any:
        versions = {name: file.version for name, file in self._files.items()}
        # The same version of the code: Ray then calls ``reconfigure``, and starts no replica anew.
        same = self._deployment.options(user_config=versions, version="safecl", _internal=True)
        return self._serve.run(same.bind(*self._given), name="safecl", route_prefix=None)

    @property
    def faults(self) -> dict[str, str]:
        """See ``Desk``: those of this process and of replicas."""
        return {**{name: fault for name, fault in self._theirs.items() if fault}, **self._own}

    def file(self, name: str) -> ModelFile:
        return self._files[name]

    def drift(self, name: str) -> dict[str, Any]:
        """See ``Desk``: each replica looks at the pictures that it answers."""
        return self._drifts.get(name) or Drift(None, []).fields() | {"evidence": 0.0}

    def reload(self, name: str) -> str:
        """Have all replicas answer from the file at its place, if it is another one now; gives its
        version.
        """
        with self._reloading, self._own.heard(name):
            file = ModelFile(self.paths[name])
            if file.digest != self._files[name].digest:
                self._files = {**self._files, name: file}
                self._drifts.pop(name, None)  # that of the model before
                self._run()
            return file.version

    def __getattr__(self, what: str) -> Any:
        """``ask``, ``decode`` and ``heat_map``, by the replica that has least to do."""

        async def call(*given: Any) -> Any:
            fine, found = await self._handle.call.remote(what, *given)
            if not fine:
                raise found
            if what == "ask":
                *_, self._theirs[given[0]], self._drifts[given[0]] = found
            return found

        return call

    def gauges(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._closed.set()
        self._serve.shutdown()
        self._ray.shutdown()
