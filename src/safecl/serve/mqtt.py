"""Frigate and Home Assistant, over MQTT, for a folder that is watched.

Frigate's snapshots come into the inbox; every answer is the state of a sensor, which Home Assistant
finds by its discovery, beside a list of classes. Who chooses one there moves the picture into that
class folder, where it is learned; "none of these" moves it into the queue.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from safecl.atomic import write_bytes
from safecl.classifier.answers.sort import put, safe_name
from safecl.errors import SafeclError
from safecl.lines import shown, slug
from safecl.runtime.answer import Answer
from safecl.serve.watch import INBOX, OWN, QUEUE
from safecl.streams.labels import Label

SNAPSHOTS = "frigate/+/+/snapshot"  # of a camera and a kind of object, a JPEG
CHOICES = "safecl/+/is"
STATUS = "safecl/status"
NONE_OF_THESE = "none of these"
PORTS = {"mqtt": 1883, "mqtts": 8883}


class Mqtt:
    """A connection to the broker at ``url``, mqtt[s]://[USER:PASSWORD@]HOST[:PORT], for the folder
    ``top``; it is made again whenever it is lost.

    ``classes``: gives those of the model as it is. ``client``: of paho, in place of a new one.
    """

    def __init__(
        self,
        url: str,
        top: Path,
        classes: Callable[[], Sequence[Label]],
        say: Callable[[str], object],
        client: Any = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # an address or a port that cannot be one
            raise SafeclError("mqtt.url") from error
        if parts.scheme not in PORTS or not parts.hostname:
            raise SafeclError("mqtt.url")
        self.host = parts.hostname
        self.port = port or PORTS[parts.scheme]
        self.top = top
        self.classes = classes
        self.say = say
        self.client = client or _client()
        self._last: dict[str, str] = {}  # where the picture of each sensor is
        self._told: dict[str, Sequence[str]] = {}  # the choices of each sensor
        self._said = ""
        if parts.username is not None:
            self.client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            self.client.tls_set()
        self.client.will_set(STATUS, "offline", retain=True)
        self.client.on_connect = self._connected
        self.client.on_connect_fail = lambda *_: self._tell("does not answer")
        self.client.on_disconnect = self._lost
        self.client.on_message = lambda client, data, message: self._heard(message)

    def __enter__(self) -> "Mqtt":
        self.client.connect_async(self.host, self.port)
        self.client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.publish(STATUS, "offline", retain=True)
        self.client.disconnect()
        self.client.loop_stop()

    def answered(self, path: str, answer: Answer) -> None:
        """Tell the answer to the picture that is at ``path`` now."""
        sensor = sensor_of(path)
        self._last[sensor] = path
        self._discover(sensor)
        said = answer.fields(detail=False)
        state = {
            **said,
            "label": "unknown" if answer.unknown else str(answer.label),
            "nearest": str(answer.label),
            "picture": Path(path).name,
        }
        self.client.publish(f"safecl/{sensor}/state", json.dumps(state), retain=True)

    def _discover(self, sensor: str) -> None:
        """As Home Assistant's discovery wants it, again whenever the classes are others."""
        names = [str(label) for label in self.classes()]
        choices = [name for name in names if safe_name(name) == name and name not in OWN]
        if self._told.get(sensor) == choices:
            return
        self._told[sensor] = choices
        device = f"safecl_{slug(self.top.resolve().name)}"
        both = {
            "availability_topic": STATUS,
            "device": {"identifiers": [device], "name": f"safecl {self.top.resolve().name}"},
        }
        state = f"safecl/{sensor}/state"
        shows = {"state_topic": state, "value_template": "{{ value_json.label }}"}
        shows |= {"json_attributes_topic": state, "name": sensor}
        asks = {"command_topic": f"safecl/{sensor}/is", "options": [*choices, NONE_OF_THESE]}
        asks |= {"name": f"{sensor} is really"}
        for kind, about in (("sensor", shows), ("select", asks)):
            name = f"{device}_{sensor}_{kind}"
            config = json.dumps({"unique_id": name, **both, **about})
            self.client.publish(f"homeassistant/{kind}/{name}/config", config, retain=True)

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, more: Any = None) -> None:
        if reason.is_failure:
            self._tell(f"refuses the connection ({reason})")
            return
        self._said = ""
        for topic in (SNAPSHOTS, CHOICES):
            client.subscribe(topic, qos=1)
        client.publish(STATUS, "online", retain=True)

    def _lost(self, client: Any, data: Any, flags: Any, reason: Any, more: Any = None) -> None:
        if reason.is_failure:
            self._tell(f"closed the connection ({reason})")

    def _heard(self, message: Any) -> None:
        _, sensor, *rest = message.topic.split("/")
        try:
            if message.topic.endswith("/snapshot"):
                if not message.retain:  # else it was answered before
                    self._save(f"{sensor}_{rest[0]}", message.payload)
            else:
                self._choose(sensor, message.payload.decode(errors="replace"))
        except SafeclError as error:
            self.say(shown(str(error)))

    def _save(self, sensor: str, data: bytes) -> None:
        write_bytes(self.top / INBOX / f"{slug(sensor)}@{time.time_ns()}.jpg", data)

    def _choose(self, sensor: str, choice: str) -> None:
        """Move the last picture of a sensor where it belongs."""
        path = self._last.get(sensor)
        if path is None or choice not in (*self._told.get(sensor, ()), NONE_OF_THESE):
            self.say(shown(str(SafeclError("mqtt.choice", sensor=sensor, choice=choice[:80]))))
            return
        folder = QUEUE if choice == NONE_OF_THESE else choice
        if Path(path).parent != self.top / folder:
            self._last[sensor] = put(path, self.top / folder, "move")

    def _tell(self, what: str) -> None:
        text = f"The MQTT broker {self.host}:{self.port} {what}; trying again."
        if text != self._said:
            self._said = text
            self.say(text)


def sensor_of(path: str) -> str:
    """The sensor that a picture belongs to: of a camera of Frigate, or of the inbox."""
    found = re.match(r"([\w-]+)@\d+", Path(path).name)
    return found[1] if found else INBOX


def _client() -> Any:
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ModuleNotFoundError:
        raise SafeclError("mqtt.not-installed") from None
    return Client(CallbackAPIVersion.VERSION2)
