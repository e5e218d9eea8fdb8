"""A model in a file learns more: the file changes in one step or not at all."""

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.store import check_path, locked
from safecl.engine.progress import Progress
from safecl.engine.stop import stoppable
from safecl.errors import SafeclError

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson


def learn_file(
    data: Any, path: Path, progress: Progress, *, name: str | None = None, again: bool = False, **params: Any
) -> "tuple[Lesson, ContinualClassifier]":
    """Teach the model at ``path`` what ``data`` holds, or make one with ``params``; gives the lesson and the model.

    Steps of the training are kept in a folder beside the file until it is written, so the same call after a stop or a
    kill resumes there.
    """
    path = path.expanduser()
    check_path(path)
    given = {key: value for key, value in params.items() if value is not None}
    device = given.pop("device", "auto")
    with locked(path), stoppable() as stop:
        if path.exists() or path.is_symlink():
            model = ContinualClassifier.load(path, device=device)
            for key, value in given.items():
                if key != "settings" and getattr(model, key) != value and not _same(key, value, model):
                    raise SafeclError(
                        f"{path} was made with {key}={getattr(model, key)}, which cannot be changed to {value}; omit "
                        "it, or make another model."
                    )
        else:
            model = ContinualClassifier(**given, device=device)
        work = path.with_name(f".{path.name}.work")
        lesson = model.learn(data, name=name, again=again, progress=progress, folder=work, stop=stop)
        model.save(path)
        with contextlib.suppress(OSError):
            shutil.rmtree(work)
    return lesson, model


def _same(key: str, value: Any, model: ContinualClassifier) -> bool:
    from safecl.backbone.settings import SIZES

    return key == "backbone" and SIZES.get(value, (value,))[0] == model.backbone
