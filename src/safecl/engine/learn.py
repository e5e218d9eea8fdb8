"""A method learns one session; runs and the classifier both teach through this function."""

import time
from typing import Any

import torch

from safecl.engine.fit import Trainer
from safecl.methods.method import Method, register_classes
from safecl.streams.stream import Session


def learn(method: Method, session: Session, fit: Trainer) -> dict[str, Any]:
    """Teach ``method`` the session, or go on at the last saved step of a call that was stopped;
    gives what it took.
    """
    began = time.monotonic()
    fit.begin(session.number)
    register_classes(method, session.classes)
    method.notes = {}
    with torch.no_grad():  # ``fit`` alone computes gradients
        method.learn(session, fit)
    method.notes |= fit.notes
    method.sessions += 1
    method.eval()
    session.close()
    fit.measure()
    fitted, images = (sum(phase[key] for phase in fit.phases) for key in ("seconds", "images"))
    return {
        "steps": fit.steps,
        "seconds": {"fit": fitted, "statistics": time.monotonic() - began - fit.spent},
        "phases": fit.phases,
        "draws": fit.draws,
        "images_per_second": images / fitted if fitted else None,
        **({"notes": method.notes} if method.notes else {}),
    }
