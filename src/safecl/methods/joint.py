"""Joint training: all classes at once, the bound that continual methods are held against."""

from functools import partial

import torch
from torch import nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.methods.method import Fit, Group, TunedMethod
from safecl.methods.settings.joint import JointSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class Joint(TunedMethod):
    """A run gives it the whole stream as one session. A session after that goes on with the classes seen so far."""

    outputs = ("joint",)
    settings: JointSettings

    def __init__(self, backbone: Backbone, settings: JointSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.head = CosineHead(backbone.width, settings.scale)

    def learn(self, session: Session, fit: Fit) -> None:
        new = len(self.classes) - self.head.classes
        self.head.grow_random(new, generator(self.seed, "head", self.head.classes))
        body = Group(list(self.learner.parameters()), rate=self.settings.body_rate)
        every = torch.arange(self.head.classes, device=self.backbone.device)
        fit("joint", nn.ModuleList([self.learner, self.head]), session, partial(self.loss, every), groups=[body])
