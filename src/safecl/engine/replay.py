"""A step of training as one launch: recorded once as a CUDA graph, and replayed."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

Values = dict[str, Tensor]


class Shared:
    """What all recordings of this process have in common, so that a long life takes no more than a short one.

    Libraries keep a workspace for every stream they ever saw, and the memory of a recording is its own: both would
    pile up, one for each phase of training.
    """

    stream: ClassVar[torch.cuda.Stream | None] = None
    last: ClassVar[torch.cuda.CUDAGraph | None] = None  # kept for its memory, which the next recording takes over
    familiar: ClassVar[set[Any]] = set()  # shapes that a step was called with: libraries have chosen their kernels


class Replay:
    """``function`` of tensors on one device, with fixed shapes mostly and no look at a value on the host.

    A small network is done with a kernel sooner than Python has launched the next one; a graph is launched whole.
    The result of a call is overwritten by the next one. Elsewhere than on CUDA, or with ``on`` false, this is the
    function itself, and also where recording fails, which ``say`` is told. One is in use at a time.
    """

    def __init__(
        self, function: Callable[..., Values], device: torch.device, on: bool, say: Callable[[str], None]
    ) -> None:
        self.function, self.on, self.say = function, on and device.type == "cuda", say
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Values]] = {}
        self._called: set[Any] = set()

    def __call__(self, *inputs: Tensor) -> Values:
        shapes = tuple(x.shape for x in inputs)
        if self.on and shapes in Shared.familiar and shapes not in self._recorded:
            self._record(shapes, inputs)
        if shapes not in self._recorded:
            Shared.familiar.add(shapes)
            self._called.add(shapes)
            return self.function(*inputs)
        graph, places, values = self._recorded[shapes]
        for place, x in zip(places, inputs, strict=True):
            place.copy_(x, non_blocking=True)
        graph.replay()
        return values

    def _record(self, shapes: Any, inputs: tuple[Tensor, ...]) -> None:
        places, graph = tuple(x.clone() for x in inputs), torch.cuda.CUDAGraph()
        aside = Shared.stream = Shared.stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):
                # torch.cuda.graph would do this too, but first give all cached memory back.
                pool = None if Shared.last is None else Shared.last.pool()
                graph.capture_begin(pool, capture_error_mode="thread_local")
                try:
                    values = self.function(*places)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            if shapes not in self._called:  # familiar from another step, which may have other kernels
                Shared.familiar.discard(shapes)
                return
            self.on = False
            self.say(f"This step cannot be recorded as a CUDA graph, so it is slower ({str(error).splitlines()[0]}).")
            return
        torch.cuda.current_stream().wait_stream(aside)
        Shared.last = graph
        self._recorded[shapes] = graph, places, values
