"""A step of training as one launch: recorded once as a CUDA graph, and replayed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Values = dict[str, Tensor]
# Shapes that some step of this process was called with. Before a recording libraries must have chosen their kernels.
_familiar: set[Any] = set()


class Replay:
    """``function`` of tensors on one device, with fixed shapes mostly and no look at a value on the host.

    A small network is done with a kernel sooner than Python has launched the next one; a graph is launched whole.
    The result of a call is overwritten by the next one. Elsewhere than on CUDA, or with ``on`` false, this is the
    function itself, and also where recording fails, which ``say`` is told.
    """

    def __init__(
        self, function: Callable[..., Values], device: torch.device, on: bool, say: Callable[[str], None]
    ) -> None:
        self.function, self.on, self.say = function, on and device.type == "cuda", say
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Values]] = {}
        self._pool: Any = None  # memory that all recordings share: only one of them runs at a time
        self._called: set[Any] = set()

    def __call__(self, *inputs: Tensor) -> Values:
        shapes = tuple(x.shape for x in inputs)
        if self.on and shapes in _familiar and shapes not in self._recorded:
            self._record(shapes, inputs)
        if shapes not in self._recorded:
            _familiar.add(shapes)
            self._called.add(shapes)
            return self.function(*inputs)
        graph, places, values = self._recorded[shapes]
        for place, x in zip(places, inputs, strict=True):
            place.copy_(x, non_blocking=True)
        graph.replay()
        return values

    def _record(self, shapes: Any, inputs: tuple[Tensor, ...]) -> None:
        places, graph, aside = tuple(x.clone() for x in inputs), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):
                # torch.cuda.graph would do this too, but first give all cached memory back.
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    values = self.function(*places)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            if shapes not in self._called:  # familiar from another step, which may have other kernels
                _familiar.discard(shapes)
                return
            self.on = False
            self.say(f"This step cannot be recorded as a CUDA graph, so it is slower ({str(error).splitlines()[0]}).")
            return
        torch.cuda.current_stream().wait_stream(aside)
        self._pool = graph.pool()
        self._recorded[shapes] = graph, places, values
