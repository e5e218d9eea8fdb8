"""Decides: what the ridge heads read of a picture (tokens of more blocks, patches, mirror image).
By: leave-one-out errors of the untuned backbone on the first session's pictures, before any pilot.
Worth: SAFE +1.1 and RanPAC +1.3 over the last CLS token alone (36 cells, seed 1, which chose the
rules); by all sessions' evidence it would be 0.3 better on frozen features (docs/results.md).
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import MAX_JUDGING_PICTURES, judges
from safecl.heads.reading import Reading
from safecl.heads.ridge import RidgeHead
from safecl.learner import Reader
from safecl.methods.experts import Ensemble
from safecl.methods.method import Fit
from safecl.streams.stream import Session


class ChosenReading(Ensemble):
    """All heads read what is best for the first expert's."""

    def reading(self, session: Session, fit: Fit) -> Reading:
        first = next(iter(self.experts().values()))
        assert isinstance(first.head, RidgeHead)
        return choose_reading(first.head, self.backbone, session, fit)


def choose_reading(head: RidgeHead, network: Backbone, session: Session, fit: Fit) -> Reading:
    """Let ``head`` read what leave-one-out errors on the session's pictures ask for, of what its
    settings allow; gives what that is.

    The untuned ``network`` is asked: what is tuned on these pictures knows them already.
    """
    options = head.settings.readings(network.widths, fit.transform.flip > 0)
    best = options[0]
    least = math.inf
    if len(options) > 1:
        numbers = {label: i for i, label in enumerate(session.classes)}
        rows = judges(
            torch.tensor([numbers[label] for label in session.train.labels]), MAX_JUDGING_PICTURES
        )
        widest = Reading(*map(max, zip(*options, strict=True)))
        if len(rows):
            # those that read as much share a projection
            each = {network.widths.total(option): option for option in options}
            with ThreadPoolExecutor(len(each)) as pool:  # a projection takes as long as the network
                apart = head.settings.apart and widest.blocks > 1
                drawing = pool.map(partial(head.project.drawn, apart=apart), each.values())
                targets, features = fit.features(
                    session.only(rows.tolist()), Reader(network, widest)
                )
            projections = dict(zip(each, drawing, strict=True))
            for option in options:
                head.read(option, projections[network.widths.total(option)])
                read = network.widths.of(features, option, widest)
                error = float(head.leave_one_out(read, targets).mean())
                if fit.agree(error < least):
                    best = option
                    least = error
    head.read(best)
    return best
