"""Every setting is listed once a kind, with its meaning and the value that a run would have."""

import pytest

from safecl.cli.info import every_key
from safecl.configure.layers import TAGS, method_groups
from safecl.configure.sentences import keys
from safecl.experiments.config import RunSettings, load
from safecl.settings import flatten

GROUPS = ("method", "stream", "backbone", "train", "pet")


def test_every_setting_is_there_and_has_a_meaning() -> None:
    listed = every_key()
    tags = {f"{group}.{tag}" for group, tag in TAGS.items()}
    every = set(keys(RunSettings))
    groups = {"train"} | {key.rpartition(".")[0] for key in every}
    assert {key.name for key in listed} | tags >= every - {"preset"} - groups
    assert all(key.meaning for key in listed)


@pytest.mark.parametrize("source", ["safe", "paper", "ranpac", "aper", "simplecil"])
def test_values_are_those_that_a_run_would_have(source: str) -> None:
    settings = load(source)
    values = flatten(settings.model_dump(mode="json"))
    for key in every_key(source):
        group = key.name.partition(".")[0]
        full = f"method.{key.name}" if group in method_groups() else key.name
        chosen = {
            "method": settings.method.name,
            "stream": settings.stream.kind,
            "pet": settings.pet,
        }.get(group)
        if full in values and (not key.kinds or chosen in key.kinds):
            value = values[full]
            if isinstance(value, bool | str) or value is None:
                assert key.value == {None: "null", True: "true", False: "false"}.get(
                    value, value
                ), key
            elif not isinstance(value, list):
                assert float(key.value) == value, key


def test_of_a_method_only_what_it_has_is_listed() -> None:
    names = {key.name for key in every_key("finetune")}
    assert "pet" in names and "method.guide.lambda_cos" not in names
    assert not any(name.startswith("ridge.") for name in names)
    assert "method.guide.lambda_cos" in {key.name for key in every_key("safe")}
