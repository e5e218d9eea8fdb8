"""What a ridge head reads of a picture."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # settings import nothing heavy
    from torch import Tensor


class Reading(NamedTuple):
    """The CLS token of the last ``layers`` blocks, and the mean of the ``patches`` of the last one, each after the
    final norm; with ``mirror`` those of the mirror image as well."""

    layers: int = 1
    patches: bool = False
    mirror: bool = False

    @property
    def blocks(self) -> int:
        """Tokens of one view."""
        return self.layers + self.patches

    @property
    def views(self) -> int:
        """Of a picture: itself, and its mirror image."""
        return 1 + self.mirror

    @property
    def once(self) -> "Reading":
        """Of the picture alone."""
        return self._replace(mirror=False)

    def of(self, rows: "Tensor", widest: "Reading") -> "Tensor":
        """From what ``widest`` reads (N, d′), what this one does, which is less."""
        tokens = rows.reshape(len(rows), widest.views, widest.blocks, -1)[:, : self.views]
        chosen: Tensor = tokens[:, :, [*range(self.layers), *([widest.layers] if self.patches else [])]]
        return chosen.flatten(1)


PLAIN = Reading()
