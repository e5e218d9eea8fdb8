"""Class orders by the likeness of classes to a frozen network, never by a test label.

Which order is hard for a method cannot be known beforehand: two extremes are found, like classes
in one session and like classes in different sessions, and the worse of both is what a method does
at worst.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.device_loader import DeviceLoader
from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.stream import positions

EACH = 10  # pictures of a class whose features are averaged
ROUNDS = 50  # of exchanges at most; few are needed


@torch.no_grad()
def likeness(
    backbone: Backbone, train: Pictures, classes: Sequence[Label], transform: Transform
) -> NDArray[np.float64]:
    """(C, C): the cosine between the means of the classes' normalised frozen features."""
    where = positions(train.labels)
    means = []
    for label in classes:
        mine = train.subset(where[label][:EACH])
        views = DeviceLoader(mine, transform, backbone.device).plain(list(range(len(mine))))
        found = torch.cat([backbone.features(images).double().cpu() for images in views])
        means.append(unit(unit(found).mean(dim=0)))
    stacked = unit(torch.stack(means) - torch.stack(means).mean(dim=0))
    similar: NDArray[np.float64] = (stacked @ stacked.T).numpy()
    return similar


def unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def grouped(similar: NDArray[np.float64], sizes: Sequence[int], together: bool) -> list[int]:
    """The classes in an order whose sessions of ``sizes`` hold like ones ``together``, or keep them
    apart: classes of two sessions change places as long as that helps.
    """
    gain = similar.copy() if together else -similar
    np.fill_diagonal(gain, 0.0)
    session = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(ROUNDS):
        changed = False
        for i in range(len(session)):
            towards = pulls(gain, session, len(sizes))
            # what both gain by changing places, each without the other in its new session
            better = (
                towards[i, session]
                - towards[i, session[i]]
                + towards[:, session[i]]
                - towards[np.arange(len(session)), session]
                - 2 * gain[i]
            )
            better[session == session[i]] = 0.0
            best = int(better.argmax())
            if better[best] > 1e-9:
                session[i], session[best] = session[best], session[i]
                changed = True
        if not changed:
            break
    return [int(i) for i in np.argsort(session, kind="stable")]


def pulls(
    gain: NDArray[np.float64], session: NDArray[np.int64], sessions: int
) -> NDArray[np.float64]:
    """(C, sessions): the sum of what a class gains by each class of each session."""
    members = (session[:, None] == np.arange(sessions)).astype(float)
    found: NDArray[np.float64] = gain @ members
    return found
