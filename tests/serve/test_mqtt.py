"""Frigate and Home Assistant over MQTT: by a client that records, and by a real broker where one is
installed.
"""

import importlib.util
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safecl.runtime.answer import Answer
from safecl.serve.mqtt import Mqtt, sensor_of
from tests.conftest import raises

JPEG = b"\xff\xd8 a picture"


def answer(label: str, unknown: bool = False) -> Answer:
    return Answer(label, 0.9, unknown, [(label, 0.9)], {}, {}, 1.0, 0.0)


class Client:
    """What paho's client is asked to do: messages by topic, and topics that are listened to."""

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}
        self.topics: list[str] = []
        self.login: tuple[str, str] | None = None

    def publish(self, topic: str, payload: str, retain: bool) -> None:
        self.sent[topic] = payload

    def subscribe(self, topic: str, qos: int) -> None:
        self.topics.append(topic)

    def username_pw_set(self, *login: str) -> None:
        self.login = login  # type: ignore[assignment]

    def will_set(self, topic: str, payload: str, retain: bool) -> None:
        self.sent[topic] = payload


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "birds/inbox").mkdir(parents=True)
    return tmp_path / "birds"


def connected(top: Path, said: list[str]) -> tuple[Mqtt, Client]:
    client = Client()
    made = Mqtt("mqtt://me:a%40b@pi", top, lambda: ["tit", "a/b", "inbox"], said.append, client)
    made._connected(client, None, None, SimpleNamespace(is_failure=False))
    return made, client


def hear(made: Mqtt, topic: str, payload: bytes, retain: bool = False) -> None:
    made.client.on_message(None, None, SimpleNamespace(topic=topic, payload=payload, retain=retain))


def test_a_snapshot_comes_into_the_inbox_once(top: Path) -> None:
    made, client = connected(top, [])
    assert client.login == ("me", "a@b") and client.sent["safecl/status"] == "online"
    hear(made, "frigate/garden/bird/snapshot", JPEG)
    hear(made, "frigate/garden/bird/snapshot", JPEG, retain=True)  # as after each connection
    (found,) = (top / "inbox").iterdir()
    assert found.read_bytes() == JPEG and sensor_of(str(found)) == "garden_bird"


def test_home_assistant_finds_a_sensor_and_the_classes_that_are_folders(top: Path) -> None:
    made, client = connected(top, [])
    made.answered("x/garden_bird@12.jpg", answer("tit"))
    state = json.loads(client.sent["safecl/garden_bird/state"])
    assert state["label"] == "tit" and state["probability"] == 0.9
    made.answered("x/garden_bird@13.jpg", answer("tit", unknown=True))
    assert json.loads(client.sent["safecl/garden_bird/state"])["label"] == "unknown"
    sensor, select = (
        json.loads(client.sent[f"homeassistant/{kind}/safecl_birds_garden_bird_{kind}/config"])
        for kind in ("sensor", "select")
    )
    assert sensor["state_topic"] == "safecl/garden_bird/state"
    assert select["command_topic"] == "safecl/garden_bird/is"
    assert select["options"] == ["tit", "none of these"]
    assert sensor["device"] == select["device"] and sensor["unique_id"] != select["unique_id"]


def test_a_choice_moves_the_picture_where_it_is_learned(top: Path) -> None:
    said: list[str] = []
    made, _ = connected(top, said)
    picture = top / "sorted/wren/garden_bird@1.jpg"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(JPEG)
    made.answered(str(picture), answer("wren"))
    for choice in (b"../up", b"inbox", b"\xff"):
        hear(made, "safecl/garden_bird/is", choice)
    hear(made, "safecl/other/is", b"tit")
    assert picture.exists() and len(said) == 4
    hear(made, "safecl/garden_bird/is", b"tit")
    assert (top / "tit/garden_bird@1.jpg").read_bytes() == JPEG and not picture.exists()
    hear(made, "safecl/garden_bird/is", b"none of these")
    hear(made, "safecl/garden_bird/is", b"none of these")
    assert [path.name for path in (top / "queue").iterdir()] == ["garden_bird@1.jpg"]
    (top / "queue/garden_bird@1.jpg").unlink()
    hear(made, "safecl/garden_bird/is", b"tit")  # somebody was quicker
    assert len(said) == 5


def test_a_broker_that_refuses_is_named_once(top: Path) -> None:
    said: list[str] = []
    made, client = connected(top, said)
    for _ in range(3):
        made.client.on_connect_fail(client, None)
    assert len(said) == 1 and "pi:1883" in said[0]
    for url in ("http://pi", "mqtt://", "mqtt://pi:port", "mqtt://pi:99999", "mqtt://[pi"):
        with raises("mqtt.url"):
            Mqtt(url, top, list, said.append, client)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    """The port of a real broker, which asks for a password."""
    program = shutil.which(
        "mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/opt/homebrew/sbin"
    )
    keeper = shutil.which("mosquitto_passwd")
    if program is None or keeper is None or importlib.util.find_spec("paho") is None:
        pytest.skip("mosquitto and paho-mqtt are not both installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    subprocess.run([keeper, "-b", "-c", str(tmp_path / "users"), "me", "right"], check=True)
    (tmp_path / "users").chmod(0o644)
    (tmp_path / "broker.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {tmp_path}/users\n"
        "user root\n"
    )
    process = subprocess.Popen([program, "-c", str(tmp_path / "broker.conf")])
    yield port
    process.terminate()
    process.wait(timeout=30)


def until(true: Callable[[], Any]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true in 30 s")


def test_a_real_broker_carries_pictures_answers_and_choices(broker: int, top: Path) -> None:
    from paho.mqtt.client import Client as Paho
    from paho.mqtt.enums import CallbackAPIVersion

    heard: dict[str, bytes] = {}
    other = Paho(CallbackAPIVersion.VERSION2)
    other.username_pw_set("me", "right")
    other.on_message = lambda _, __, message: heard.update({message.topic: message.payload})
    other.on_connect = lambda client, *_: client.subscribe(
        [("safecl/#", 1), ("homeassistant/#", 1)]
    )
    said: list[str] = []
    with Mqtt(f"mqtt://me:wrong@127.0.0.1:{broker}", top, list, said.append):
        until(lambda: said)
    assert "refuses" in said[0]
    with Mqtt(f"mqtt://me:right@127.0.0.1:{broker}", top, lambda: ["tit"], said.append) as made:
        other.connect("127.0.0.1", broker)
        other.loop_start()
        until(lambda: heard.get("safecl/status") == b"online")
        other.publish("frigate/garden/bird/snapshot", JPEG, qos=1).wait_for_publish(30)
        until(lambda: list((top / "inbox").iterdir()))
        picture = min((top / "inbox").iterdir())
        assert picture.read_bytes() == JPEG
        made.answered(str(picture), answer("wren"))
        until(lambda: "safecl/garden_bird/state" in heard)
        until(lambda: sum("homeassistant" in topic for topic in heard) == 2)
        other.publish("safecl/garden_bird/is", "tit", qos=1)
        until(lambda: (top / "tit" / picture.name).exists())
    until(lambda: heard.get("safecl/status") == b"offline")
    other.disconnect()
    other.loop_stop()
