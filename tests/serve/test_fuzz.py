"""2,000 requests made of the OpenAPI of the service, right and wrong ones: none of them is an error
of ours.
"""

import json
import random
import string
from typing import Any

import pytest

from .conftest import Service, text

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    "a",
    "\x00",
    "../..",
    "💥" * 300,
    [],
    [[]],
    {},
    {"a": {}},
    [None],
    ["a"],
    "AAAA",
    "nan",
    "null",
    [1, 2],
    {"data": "AAAA"},
    "%00",
    "é",
    "a" * 5000,
    -(2**63),
]


def value(
    schema: dict[str, Any], defs: dict[str, Any], dice: random.Random, pictures: list[str]
) -> Any:
    """A value of a JSON schema, in one case of eight anything else."""
    if dice.random() < 0.12:
        return dice.choice(ODD)
    if "$ref" in schema:
        return value(defs[schema["$ref"].rpartition("/")[2]], defs, dice, pictures)
    if "anyOf" in schema:
        return value(dice.choice(schema["anyOf"]), defs, dice, pictures)
    kind = schema.get("type")
    if kind == "object":
        found = {
            key: value(part, defs, dice, pictures)
            for key, part in schema.get("properties", {}).items()
        }
        return {key: part for key, part in found.items() if dice.random() < 0.95}
    if kind == "array":
        return [
            value(schema.get("items", {}), defs, dice, pictures)
            for _ in range(dice.choice([0, 1, 1, 2, 3]))
        ]
    if kind == "string":
        return dice.choice(
            [*pictures, "a", "BYTES", "label", "".join(dice.choices(string.printable, k=9))]
        )
    return dice.choice([0, 1, 2, 20, 10**9]) if kind == "integer" else dice.choice(ODD)


@pytest.mark.slow
def test_two_thousand_requests_end_without_an_error_of_ours(service: Service) -> None:
    api = service.client.get("/openapi.json").json()
    dice = random.Random(5)
    defs = api["components"]["schemas"]
    raw = [service.pictures("a")[0], b"", b"none", b"\xff\xd8\xff" + bytes(99)]
    pictures = [text(one) for one in raw]
    operations = [
        (verb, path, what) for path, verbs in api["paths"].items() for verb, what in verbs.items()
    ]
    assert len(operations) >= 20
    seen = set()
    for _ in range(2000):
        verb, path, what = dice.choice(operations)
        path = path.replace("{model}", dice.choice(["m", "m", "m", "m", "x", "%2e%2e", "m%00"]))
        path = path.replace("{version}", dice.choice([service.desk.file("m").version, "0"]))
        path = path.replace("{job}", dice.choice([*list(service.jobs.all)[-3:], "0"]))
        if path.endswith("/events"):  # waits for the end of a job
            path = path.replace("/events", "")
        query = {
            one["name"]: dice.choice(["0.1", "-1", "nan", "x", "", "1"])
            for one in what.get("parameters", [])
            if one["in"] == "query" and dice.random() < 0.5
        }
        content = what.get("requestBody", {}).get("content", {})
        kind, schema = dice.choice([*content.items()]) if content else ("application/json", {})
        body = dice.choice(raw) if "image" in kind else b""
        if kind == "application/json" and content:
            schema = schema["schema"]
            made = value(schema, {**defs, **schema.get("$defs", {})}, dice, pictures)
            body = json.dumps(made).encode()
            body = body[: dice.randrange(len(body))] if dice.random() < 0.1 else body
        verb = dice.choice(["put", "delete", "head", "options"]) if dice.random() < 0.03 else verb
        answer = service.client.request(
            verb,
            path,
            params=query,
            content=body,
            headers={"Content-Type": kind.replace("*", "png")},
        )
        assert answer.status_code < 500, (verb, path, query, body[:300], answer.text)
        if answer.status_code >= 400 and verb != "head":
            # "did you mean …?"
            assert answer.json()["error"].endswith((".", "?", "…")), answer.text
        seen.add(answer.status_code)
    assert {200, 202, 404, 405, 422} <= seen
    assert service.ask(raw[0])["answers"][0]["label"]
