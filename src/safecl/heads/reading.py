"""What a ridge head reads of a picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # settings import nothing heavy
    from torch import Tensor


class Reading(NamedTuple):
    """A network's own feature, with ``layers`` that of as many blocks or stages, the last first,
    and with ``patches`` the other summary of the last one; with ``mirror`` those of the mirror
    image as well. What each is of a network its family says.
    """

    layers: int = 1
    patches: bool = False
    mirror: bool = False

    @property
    def blocks(self) -> int:
        """Features of one view."""
        return self.layers + self.patches

    @property
    def views(self) -> int:
        """Of a picture: itself, and its mirror image."""
        return 1 + self.mirror

    @property
    def once(self) -> "Reading":
        """Of the picture alone."""
        return self._replace(mirror=False)


PLAIN = Reading()


@dataclass(frozen=True)
class Widths:
    """How wide each of the features is that can be read of a network.

    ``own``: the d of its own feature. ``earlier``: of the blocks or stages before the last, from
    the last one back; None: as many as are asked for, of width d. ``patches``: of the other summary
    of the last one; 0 where there is none, and None for d.
    """

    own: int
    earlier: tuple[int, ...] | None = None
    patches: int | None = None

    @property
    def depth(self) -> int:
        """Blocks or stages that can be read."""
        return 1 + len(self.earlier or ())

    def parts(self, reading: Reading) -> list[int]:
        """The widths of the features of one view, in their order."""
        more = reading.layers - 1
        earlier = (self.own,) * more if self.earlier is None else self.earlier[:more]
        patches = self.own if self.patches is None else self.patches
        return [self.own, *earlier, *([patches] if reading.patches else [])]

    def total(self, reading: Reading) -> int:
        """d of one view."""
        return sum(self.parts(reading))

    def of(self, rows: "Tensor", reading: Reading, widest: Reading) -> "Tensor":
        """From what ``widest`` reads (N, d′), what ``reading`` does, which is less."""
        wide = self.parts(widest)
        places = [*range(reading.layers), *([widest.layers] if reading.patches else [])]
        columns = [sum(wide[:i]) + j for i in places for j in range(wide[i])]
        chosen: Tensor = rows.reshape(len(rows), widest.views, -1)[:, : reading.views, columns]
        return chosen.flatten(1)


def widths_of(widths: Widths | int) -> Widths:
    """The same; a number is the width of everything."""
    return Widths(widths) if isinstance(widths, int) else widths
