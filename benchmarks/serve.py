"""Many clients ask a service while it learns, against a plain server that answers one request at a
time.

    python benchmarks/serve.py --clients 50 --seconds 60

Prints pictures per second, p50 and p99 of each, failed requests, answers whose classes are not
those of their version, the growth of memory, and the seconds from a correction to the corrected
answer. ``--folder`` gives pictures, of which 20 classes are learned; without it they are drawn.
``--batch`` pictures go in one request.
"""

import argparse
import base64
import http.client
import http.server
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

LONGEST = 60.0  # seconds that are waited for a job once nobody asks
CLASSES = 20
EACH = 6  # pictures of a class that are learned first; as many are asked about, and learned later


def drawn(label: int, seed: int, side: int) -> bytes:
    """A noisy JPEG; each label has its own pattern."""
    pattern = np.random.default_rng(label).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    image = np.asarray(
        Image.fromarray(pattern).resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64
    )
    image += np.random.default_rng([label, seed]).normal(0, 40, image.shape)
    file = io.BytesIO()
    Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def pictures_of(folder: Path | None, side: int) -> dict[str, list[bytes]]:
    if folder is None:
        return {
            f"class {c}": [drawn(c, i, side) for i in range(2 * EACH)] for c in range(CLASSES + 2)
        }
    found = sorted(path for path in folder.iterdir() if path.is_dir())[: CLASSES + 2]
    return {
        one.name: [file.read_bytes() for file in sorted(one.iterdir())[: 2 * EACH]] for one in found
    }


class Clients:
    """``count`` clients that ask again and again."""

    def __init__(self, port: int, path: str, bodies: list[bytes], kind: str, count: int) -> None:
        self.port = port
        self.path = path
        self.bodies = bodies
        self.kind = kind
        self.count = count
        self.took: list[float] = []
        self.failed = 0
        self.answers = list[tuple[str, frozenset[Any]]]()
        self._over = threading.Event()

    def run(self, seconds: float) -> "Clients":
        threads = [threading.Thread(target=self._ask, args=(i,)) for i in range(self.count)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self._over.set()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - began
        return self

    def _ask(self, number: int) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while not self._over.is_set():
            number += 1
            began = time.monotonic()
            try:
                line.request(
                    "POST",
                    self.path,
                    self.bodies[number % len(self.bodies)],
                    {"Content-Type": self.kind},
                )
                answer = line.getresponse()
                data = json.loads(answer.read())
                if answer.status != 200:
                    raise OSError(data)
                for one in data["answers"]:
                    self.answers.append(
                        (data["version"], frozenset(label for label, _ in one["nearest"]))
                    )
                self.took.append(time.monotonic() - began)
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.failed += 1
                print("failed:", repr(error)[:200], file=sys.stderr)
                line.close()

    def line(self, name: str) -> str:
        p50, p99 = (1000 * float(np.quantile(self.took or [0], q)) for q in (0.5, 0.99))
        return (
            f"{name:<28} {self.rate:8.1f} pictures/s   p50 {p50:7.0f} ms   p99 {p99:7.0f} ms  "
            f" {self.failed} failed"
        )

    @property
    def rate(self) -> float:
        return len(self.answers) / self.seconds


def plain(path: str, device: str) -> None:
    """A server as one writes it in ten minutes: a request, a prediction, an answer."""
    from safecl.classifier.classifier import ContinualClassifier

    model: Any = ContinualClassifier.load(path, device=device)  # type: ignore[arg-type]
    model._snapshot()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            (one,) = model.explain([Image.open(io.BytesIO(data))])
            reply = json.dumps(
                {"version": "", "answers": [{"label": one.label, "nearest": one.nearest}]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.socket.listen(128)
    print(f"Serving at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


def started(*command: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline().rsplit(":", 1)[1].split("/")[0])


def call(port: int, path: str, body: Any = None, verb: str = "GET") -> Any:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    text = None if body is None else json.dumps(body)
    line.request(verb if body is None else "POST", path, text, {"Content-Type": "application/json"})
    data = line.getresponse().read()
    return data.decode() if path == "/metrics" else json.loads(data)


def ended(port: int, job: str, seconds: float) -> dict[str, Any]:
    """A job at its end; one that takes longer is stopped."""
    until = time.monotonic() + seconds
    while (found := call(port, f"/api/jobs/{job}"))["state"] in ("waiting", "running"):
        if time.monotonic() > until:
            call(port, f"/api/jobs/{job}", verb="DELETE")
        time.sleep(0.02)
    assert found["state"] != "failed", found
    return dict(found)


def gauge(port: int, name: str) -> float:
    return next(
        float(line.split()[1]) for line in call(port, "/metrics").splitlines() if name in line
    )


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--backbone", default="micro")
    parser.add_argument("--method", default="safe")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument(
        "--each", type=int, default=EACH, help="pictures of a class that are learned first"
    )
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--plain", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        plain(given.plain, given.device)
        return
    from safecl.classifier.classifier import ContinualClassifier

    taught = pictures_of(given.folder, given.side)
    known = list(taught)[:CLASSES]
    new = list(taught)[CLASSES:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.safecl")
        files = list[Path]()
        labels = list[str]()
        for label in known:
            for i, data in enumerate(taught[label][: given.each]):
                files.append(Path(folder, f"{label} {i}.jpg"))
                files[-1].write_bytes(data)
                labels.append(label)
        more = {} if given.weights is None else {"backbone.weights": given.weights}
        model = ContinualClassifier(
            given.backbone, given.method, epochs=1, device=given.device, settings=more
        )
        model.learn(files, labels)
        model.save(path)
        model.predict(files)  # warm
        began = time.monotonic()
        count = 0
        for _ in model.answers(files * 40):
            count += 1
            if count >= 4 * len(files) and time.monotonic() - began > given.seconds / 4:
                break
        offline = count / (time.monotonic() - began)
        del model
        single = [data for label in known for data in taught[label]]
        bodies = single
        kind = "image/jpeg"
        if given.batch > 1:
            kind = "application/json"
            each = [text(one) for one in single]
            bodies = [
                json.dumps({"pictures": (each * 20)[i : i + given.batch]}).encode()
                for i in range(len(each))
            ]
        print(f"{'offline predict':<28} {offline:8.1f} pictures/s", flush=True)
        process, port = started(__file__, "--plain", str(path), "--device", given.device)
        one = Clients(port, "/", single, "image/jpeg", given.clients).run(given.seconds)
        process.kill()
        process.wait()
        print(one.line("plain server"), flush=True)
        command = ("-m", "safecl", "serve", str(path), "--port", "0", "--device", given.device)
        process, port = started(*command)
        ask = "/api/models/m/predict"
        enter = []
        for i in range(5):
            data = taught[known[0]][EACH + i]
            label = known[1]
            began = time.monotonic()
            job = call(
                port, "/api/models/m/correct", {"pictures": [{"data": text(data), "label": label}]}
            )["job"]["id"]
            version = ended(port, job, LONGEST)["version"]
            assert call(port, ask, {"pictures": [text(data)]})["version"] == version
            enter.append(time.monotonic() - began)
        print(
            "from a correction to the answer:"
            f" {', '.join(f'{seconds:.2f}' for seconds in enter)} s",
            flush=True,
        )
        Clients(port, ask, bodies, kind, given.clients).run(min(given.seconds / 4, 10))  # warm
        batches = gauge(port, "batches_total")
        quiet = Clients(port, ask, bodies, kind, given.clients).run(given.seconds)
        together = len(quiet.answers) / (gauge(port, "batches_total") - batches)
        print(
            quiet.line("service"),
            f"  {quiet.rate / one.rate:.2f} × plain, {quiet.rate / offline:.0%} of offline",
        )
        print(f"  {together:.0f} pictures in a batch", flush=True)
        before = call(port, "/api/models/m")
        classes = {before["version"]: {each["label"] for each in before["classes"]}}
        lesson = [{"data": text(data), "label": label} for label in new for data in taught[label]]
        memory = gauge(port, "resident_bytes")
        job = call(port, "/api/models/m/learn", {"pictures": lesson})["job"]["id"]
        busy = Clients(port, ask, bodies, kind, given.clients).run(given.seconds)
        growth = gauge(port, "resident_bytes") / memory - 1
        state = call(port, f"/api/jobs/{job}")
        done = ended(port, job, LONGEST)
        classes[done["version"]] = {
            each["label"] for each in call(port, "/api/models/m")["classes"]
        }
        wrong = sum(not told <= classes.get(version, set()) for version, told in busy.answers)
        print(busy.line("service, while it learns"), f"  {busy.rate / one.rate:.2f} × plain")
        print(
            f"  {wrong} answers with wrong classes; memory {growth:+.1%}; the job was"
            f" {state['state']} at the end"
        )
        process.terminate()
        print(f"stopped with {process.wait(60)}")


if __name__ == "__main__":
    main()
