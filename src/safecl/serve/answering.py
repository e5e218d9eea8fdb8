"""Models that answer: one thread asks the networks, for all requests that arrive together; new
files are swapped in.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch
from PIL import Image, ImageOps
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.classifier.answers.snapshot import BATCH, Snapshot
from safecl.classifier.model import Model
from safecl.classifier.modelfile.history import find
from safecl.classifier.modelfile.store import ModelFile
from safecl.engine.device import choose_device, choose_precision
from safecl.engine.device_loader import moved
from safecl.runtime.answer import Answer
from safecl.runtime.drift import Drift
from safecl.serve.about import answer_of
from safecl.serve.decoding import Decoded, Decoders
from safecl.serve.faults import Faults
from safecl.serve.jobs import watch
from safecl.serve.limits import MAX_WAITING, Refused
from safecl.streams.labels import Label
from safecl.streams.pictures.load import readers

GATHER = 0.003  # seconds that a request waits for others
CHUNK = 8  # pictures of a request that one process decodes
Told: TypeAlias = tuple[str, list[Any], str | None, dict[str, Any]]


@dataclass
class Asked:
    """Views (N, size, size, 3) of pictures that wait for the model ``now``; ``tell``: makes a reply
    of its answers.

    ``unknown``: the share of known pictures that may be called unknown. ``sets``: the coverage of
    sets, if they are wanted. ``drift``: is shown the pictures.
    """

    now: Snapshot
    views: np.ndarray
    tell: Callable[[list[Answer]], Any]
    unknown: float = 0.0
    sets: float | None = None
    drift: Drift | None = None
    future: "Future[Any]" = field(default_factory=Future)


class Desk:
    """The models by name. A request is answered by one state of its model, whatever is learned
    meanwhile.
    """

    def __init__(
        self, paths: Mapping[str, Path], device: str = "auto", watching: bool = True
    ) -> None:
        self.paths = dict(paths)
        self.place = choose_device(device)
        self.batch = BATCH.get(self.place.type, 64)
        self._batches = self._answered = self._reloads = 0
        self._backbones = dict[str, Backbone]()
        self._now = dict[str, tuple[Snapshot, Drift]]()
        self.faults = Faults(self.paths)
        self._reloading = threading.Lock()
        self._watching = threading.Lock()
        self._closed = threading.Event()
        self._queue: queue.Queue[Asked | None] = queue.Queue(MAX_WAITING)
        self._decoders = Decoders(readers(), MAX_WAITING)
        torch.set_num_threads(readers())  # once: what learns has a lower priority
        for name in self.paths:
            self._read(name)
        threading.Thread(target=self._run, daemon=True).start()
        if watching:
            threading.Thread(
                target=watch, args=(self.paths, self.reload, self._closed), daemon=True
            ).start()

    def file(self, name: str) -> ModelFile | None:
        """The file that answers; None where nothing is learned yet."""
        return self._now[name][0].file if name in self._now else None

    def reload(self, name: str) -> str:
        """Have the file at its place answer, if it is another one now; gives its version.

        What goes wrong is raised, and kept in ``faults`` as long as the model of before has to
        answer.
        """
        with self._reloading, self.faults.heard(name):
            return self._read(name)

    def _read(self, name: str) -> str:
        before = self.file(name)
        if before is None and not self.paths[name].exists():
            return ""
        file = ModelFile(self.paths[name])
        if before is None or before.digest != file.digest:
            chosen = (model := Model.open(file)).settings.backbone
            if (key := chosen.model_dump_json()) not in self._backbones:
                self._backbones[key] = load_backbone(chosen).to(
                    self.place, choose_precision("auto", self.place)
                )
            now = Snapshot(model, model.method(self._backbones[key]))
            drift = self._drift(name).going_on(now.calibration, now.known)
            self._now = {**self._now, name: (now, drift)}
            self._reloads += 1
        return file.version

    async def ask(
        self,
        name: str,
        pictures: Sequence[bytes],
        unknown: float,
        detail: bool,
        sets: float | None = None,
    ) -> Told:
        """(version of the model, what it says of each picture, or why that cannot be read; its
        fault, if it has one; its drift).

        See ``answer_of``, ``faults`` and ``drift``.
        """
        now, drift = self._now[name]
        fault = self.faults.get(name)
        now.limits(unknown, sets)  # refused before any picture is decoded
        # Also if another one, with views of another size, takes its place meanwhile.
        side = now.model.transform.size
        views = await self.decode(pictures, side, now.model.transform.resize)
        good = np.array([one for one in views if not isinstance(one, str)], np.uint8).reshape(
            -1, side, side, 3
        )

        def tell(answers: list[Answer]) -> list[dict[str, Any]]:
            told = iter([answer_of(one, detail) for one in answers])
            return [{"error": one} if isinstance(one, str) else next(told) for one in views]

        asked = Asked(now, good, tell, unknown, sets, drift)
        return now.file.version, await self._wait(asked), fault, self.drift(name)

    async def decode(self, pictures: Sequence[bytes], size: int, resize: int) -> list[Decoded]:
        """See ``decoding.view``."""
        starts = range(0, len(pictures), CHUNK)
        parts = [self._decoders.submit(pictures[at : at + CHUNK], size, resize) for at in starts]
        return [
            one for part in await asyncio.gather(*map(asyncio.wrap_future, parts)) for one in part
        ]

    async def heat_map(self, name: str, picture: bytes, label: Label | None) -> bytes:
        """A PNG of the picture, coloured by what speaks for a class, or for the answer."""
        from safecl.classifier.answers.explain import SIDE, heat_map, overlay

        now, _ = self._now[name]
        png = BytesIO()
        index = None if label is None else now.model.classes.index(find(now.model.header, label))
        (pixels,) = await self.decode([picture], 0, SIDE)
        if isinstance(pixels, str):
            raise Refused(422, "serve.picture.unreadable", reason=pixels)
        image = ImageOps.contain(Image.fromarray(pixels), (SIDE, SIDE))
        transform = now.model.transform
        draw = Asked(
            now, pixels[:0, :0, None], lambda _: heat_map(now.method, transform, image, index)
        )
        heat = await self._wait(draw)
        await asyncio.to_thread(lambda: overlay(image, heat, transform).save(png, "PNG"))
        return png.getvalue()

    def drift(self, name: str) -> dict[str, Any]:
        """Whether the pictures that a model was asked about look as those that it was taught,
        since it last learned; see ``Drift.fields``.
        """
        with self._watching:
            drift = self._drift(name)
            return drift.fields() | {"evidence": drift.evidence}

    def _drift(self, name: str) -> Drift:
        """Where nothing is learned yet, there is nothing to compare with."""
        return self._now[name][1] if name in self._now else Drift(None, [])

    def gauges(self) -> dict[str, float]:
        """Numbers for the metrics."""
        now = {
            "batches_total": self._batches,
            "pictures_total": self._answered,
            "reloads_total": self._reloads,
        }
        return {
            **now,
            "requests_waiting": self._queue.qsize(),
            "resident_bytes": psutil.Process().memory_info().rss,
        }

    def close(self) -> None:
        self._closed.set()
        self._queue.put(None)
        self._decoders.close()

    async def _wait(self, asked: Asked) -> Any:
        self._queue.put_nowait(asked)
        return await asyncio.wrap_future(asked.future)

    def _run(self) -> None:
        while (one := self._queue.get()) is not None:
            batch = [one]
            until = time.monotonic() + GATHER
            while sum(len(one.views) for one in batch) < self.batch:
                try:
                    more = self._queue.get(timeout=max(until - time.monotonic(), 0))
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)  # after these
                    break
                batch.append(more)
            live = [one for one in batch if one.future.set_running_or_notify_cancel()]

            def alike(one: Asked) -> tuple[int, float, float]:
                return id(one.now), one.unknown, one.sets or 0.0

            for _, group in groupby(sorted(live, key=alike), key=alike):
                self._answer(list(group))

    def _answer(self, asked: list[Asked]) -> None:
        """Answer all at once, which ask the same of the same model; where that fails, those that
        are at fault.
        """
        now = asked[0].now
        at = 0
        told = list[Any]()
        try:
            rows = self._logits(now, [one.views for one in asked if len(one.views)])
            limits = now.limits(asked[0].unknown, asked[0].sets)
            answers = list(now.answers_of(rows, limits, True)) if rows else []
            drift = asked[0].drift
            if rows and drift is not None:
                with self._watching:
                    now.watch(rows, drift)
            for one in asked:
                till = at + len(one.views)
                told.append(one.tell(answers[at:till]))
                at = till
        except Exception as error:
            for one in asked:
                self._answer([one]) if len(asked) > 1 else one.future.set_exception(error)
            return
        self._batches = self._batches + bool(at)
        self._answered = self._answered + at  # before who asked can look
        for one, said in zip(asked, told, strict=True):
            one.future.set_result(said)

    @torch.no_grad()
    def _logits(self, now: Snapshot, views: Sequence[np.ndarray]) -> dict[str, Tensor]:
        if not views:
            return {}
        images = torch.from_numpy(np.concatenate(views))
        parts = []
        for at in range(0, len(images), self.batch):
            part = moved(images[at : at + self.batch], self.place).permute(0, 3, 1, 2).contiguous()
            parts.append(now.seen(part.float() / 255, True))
        return {name: torch.cat([part[name].float().cpu() for part in parts]) for name in parts[0]}
