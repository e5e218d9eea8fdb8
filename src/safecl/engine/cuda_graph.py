"""A step of training as one launch: recorded once as a CUDA graph, and replayed."""

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

Values = dict[str, Tensor]


class Shared:
    """Stream and memory pool of all recordings of this process: with new ones for every phase,
    memory would grow.
    """

    stream: ClassVar[Any] = None
    pool: ClassVar[Any] = None
    # keeps the pool alive for the next recording
    last: ClassVar[torch.cuda.CUDAGraph | None] = None


class CudaGraph:
    """A function of tensors as a CUDA graph: recorded once for each shape of its inputs, then
    replayed.

    ``function`` must not read a value on the host. The first call with inputs of a shape is a plain
    one, in which libraries choose their kernels; the second is recorded. A call overwrites the
    result of the one before. On other devices, with ``on`` false, and after a recording that failed
    (``say`` gets a sentence), calls are plain.
    """

    def __init__(
        self,
        function: Callable[..., Values],
        device: torch.device,
        on: bool,
        say: Callable[[str], None],
    ) -> None:
        self.function = function
        self.on = on and device.type == "cuda"
        self.say = say
        self._called: set[Any] = set()
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Values]] = {}

    def __call__(self, *inputs: Tensor) -> Values:
        shapes = tuple(x.shape for x in inputs)
        if self.on and shapes in self._called and shapes not in self._recorded:
            try:
                self._recorded[shapes] = self._record(inputs)
            except RuntimeError as error:
                self._give_up(error)
        if shapes not in self._recorded:
            self._called.add(shapes)
            return self.function(*inputs)
        graph, places, values = self._recorded[shapes]
        for place, x in zip(places, inputs, strict=True):
            place.copy_(x, non_blocking=True)
        graph.replay()
        return values

    def _record(
        self, inputs: tuple[Tensor, ...]
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Values]:
        if torch.cuda.mem_get_info()[0] < torch.cuda.memory_reserved():
            # a recording cannot take what plain calls have left in the cache
            torch.cuda.empty_cache()
        Shared.stream = Shared.stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
        Shared.pool = Shared.pool or torch.cuda.graph_pool_handle()
        places = tuple(x.clone() for x in inputs)
        graph = torch.cuda.CUDAGraph()
        now = torch.cuda.current_stream()
        Shared.stream.wait_stream(now)
        with torch.cuda.stream(Shared.stream):
            graph.capture_begin(Shared.pool, capture_error_mode="thread_local")
            try:
                values = self.function(*places)
            finally:
                graph.capture_end()
        now.wait_stream(Shared.stream)
        Shared.last = graph
        return graph, places, values

    def _give_up(self, error: RuntimeError) -> None:
        """Go on with plain calls. A recording that broke off leaves generator and memory pool in
        capture mode.
        """
        self.on = False
        self._recorded.clear()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(generator.clone_state())
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), Shared.pool)
        Shared.pool = Shared.last = None
        cause = str(error.__context__ or error).splitlines()[0]
        self.say(f"This step cannot be recorded as a CUDA graph, so it is slower ({cause}).")
