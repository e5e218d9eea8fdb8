"""What the ridge heads of a method read of a picture, chosen once by the classes of the first session."""

import math
from concurrent.futures import ThreadPoolExecutor

import torch

from safecl.backbone.backbone import Backbone
from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, judges
from safecl.heads.reading import Reading
from safecl.heads.ridge import RidgeHead
from safecl.learner import Reader
from safecl.methods.method import Fit
from safecl.streams.stream import Session


def choose_reading(head: RidgeHead, network: Backbone, session: Session, fit: Fit) -> None:
    """Let ``head`` read what its settings say, or what leave-one-out errors on the session's pictures ask for.

    The untuned ``network`` is asked: what is tuned on these pictures knows them already.
    """
    options = head.settings.readings(len(network.vit.blocks), fit.transform.flip > 0)
    best, least = options[0], math.inf
    if len(options) > 1:
        numbers = {label: i for i, label in enumerate(session.classes)}
        rows = judges(torch.tensor([numbers[label] for label in session.train.labels]), MAX_JUDGING_PICTURES)
        widest = Reading(*map(max, zip(*options, strict=True)))
        if len(rows):
            blocks = {option.blocks for option in options}
            with ThreadPoolExecutor(len(blocks)) as pool:  # a projection takes as long as the network
                drawing = pool.map(head.drawn, blocks)
                targets, features = fit.features(session.only(rows.tolist()), Reader(network, widest))
            projections = dict(zip(blocks, drawing, strict=True))
            for option in options:
                head.read(option, projections[option.blocks])
                error = float(head.leave_one_out(option.of(features, widest), targets).mean())
                if fit.agree(error < least):
                    best, least = option, error
    head.read(best)
