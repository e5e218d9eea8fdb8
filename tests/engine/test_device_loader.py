"""The two views of a session's pictures: the same whether they are held on the device or read
again.
"""

from collections.abc import Callable

import pytest
import torch

from safecl.engine.device_loader import DeviceLoader, held_bytes
from safecl.randomness import generator
from safecl.streams.pictures.crop import cut_out, random_crops
from safecl.streams.stream import SessionClosedError, Stream

CPU = torch.device("cpu")


def test_held_pictures_and_those_read_ahead_are_the_same(
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream([["a", "b"]], train=4)
    pictures = stream.open(1).train
    held = DeviceLoader(pictures, stream.transform, CPU)
    read = DeviceLoader(pictures, stream.transform, CPU, room=0)
    chunks = [[0, 5, 2], [7, 1, 1], [3]]
    found = [list(loader.canvases(chunks)) for loader in (held, read)]
    for chunk, (canvas, shapes), (other, others) in zip(chunks, *found, strict=True):
        assert canvas.shape == (len(chunk), 3, 16, 16) and canvas.dtype == torch.uint8
        assert torch.equal(canvas, other) and torch.equal(shapes, others)
        assert torch.equal(canvas, pictures.canvas(chunk, stream.transform)[0])
    assert list(read.canvases([])) == []


def test_plain_views_come_in_order_and_in_pieces(
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream([["a", "b"]], train=4)
    pictures = stream.open(1).train
    loader = DeviceLoader(pictures, stream.transform, CPU, at_once=2)
    # some of them held, some read
    for indices in (
        [4, 1, 0, 7, 2],
        [2],
        [7, 1],
        [7, 1],
        [1, 7],
        [4, 1, 0, 7, 2],
    ):
        pieces = list(loader.plain(indices))
        assert [len(piece) for piece in pieces] == [2] * (len(indices) // 2) + [1] * (
            len(indices) % 2
        )
        assert torch.equal(
            torch.cat(pieces), pictures.plain(indices, stream.transform).float() / 255
        )


def test_pictures_that_are_asked_for_again_are_read_once(
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream([["a", "b"]], train=4)
    loader = DeviceLoader(stream.open(1).train, stream.transform, CPU)
    asked = range(5), range(5), range(6)
    first, again, other = (list(loader.plain(indices)) for indices in asked)
    assert first[0] is again[0] and len(other[0]) == 6


def test_a_feed_cannot_be_opened_on_a_finished_session(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream([["a"], ["b"]])
    first = stream.open(1)
    loader = DeviceLoader(first.train, stream.transform, CPU)
    stream.open(2)
    with pytest.raises(SessionClosedError):
        next(loader.canvases([[0]]))
    with pytest.raises(SessionClosedError):
        next(loader.plain([0]))


def test_a_share_of_a_batch_gets_the_crops_it_has_in_the_whole(
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream([["a", "b"]], train=4)
    canvas, shapes = stream.open(1).train.canvas(range(8), stream.transform)
    whole = cut_out(
        canvas, random_crops(shapes, stream.transform, generator(0)), stream.transform.size
    )
    crops = random_crops(shapes, stream.transform, generator(0))
    for share in (slice(0, 3), slice(3, 8), slice(7, 8)):
        some = cut_out(canvas[share], crops[share], stream.transform.size)
        assert torch.allclose(some, whole[share], rtol=0, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_pictures_held_in_host_memory_take_a_quarter_of_what_is_free_at_most(device: str) -> None:
    place = torch.device(device)
    for free in (0, 400 << 20, 1 << 30, 2 << 30):
        assert held_bytes(place, free) == free // 4
    assert held_bytes(place, 1 << 50) == {"cpu": 1 << 30, "mps": 8 << 30}[device]
    assert 0 <= held_bytes(CPU) <= 1 << 30
