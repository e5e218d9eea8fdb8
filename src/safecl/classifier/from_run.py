"""A model made from what a run has learned."""

from pathlib import Path
from typing import Any

import yaml

from safecl.backbone.load import load_backbone
from safecl.classifier.history import step
from safecl.classifier.model import Model, new_header
from safecl.classifier.settings import resolve
from safecl.classifier.state import State, sizes_of
from safecl.engine.checkpoint import load_state
from safecl.errors import SafeclError
from safecl.methods.catalog import make_method
from safecl.streams.catalog import transform_of
from safecl.streams.settings import parse_stream


def model_of_run(folder: Path) -> Model:
    """The newest state of the run in ``folder`` as a model; a run keeps no features to calibrate with."""
    resolved, states = folder / "resolved.yaml", sorted((folder / "state").glob("session_*.safetensors"))
    if not resolved.is_file() or not states:
        raise SafeclError(f"{folder} holds no run that has learned a session; give the folder of a run.")
    try:
        values: dict[str, Any] = yaml.safe_load(resolved.read_text(encoding="utf-8"))
        tensors, facts = load_state(states[-1])
        settings = resolve({key: values[key] for key in ("method", "backbone", "train", "seed")})
        epochs = settings.train.epochs
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise SafeclError(f"The run in {folder} cannot be read ({type(error).__name__}: {error}).") from error
    settings = settings.model_copy(update={"epochs": epochs})
    backbone = load_backbone(settings.backbone)
    stream = values["stream"]
    transform = transform_of(None if stream["kind"] == "python" else parse_stream(stream), backbone.size)
    method = make_method(settings.method, backbone, settings.seed)
    method.restore(tensors, facts["classes"])
    sizes = sizes_of(method)
    state = State(
        tensors={k: v for k, v in tensors.items() if k not in {f"{name}.gram" for name in sizes}},
        base={name: tensors[f"{name}.gram"] for name in sizes},
    )
    classes = [[label, 0] for label in facts["classes"]]
    entry = step("run", folder.name, classes=classes, new=list(facts["classes"]), sessions=facts["session"])
    header = new_header(settings, backbone, transform)
    header |= {"classes": facts["classes"], "history": [entry], "statistics": sizes, "changed": entry["date"]}
    return Model(header, state)
