"""The service: the sentence of each code."""

TABLE = {
    "serve.ray.missing": "--ray needs Ray Serve: pip install 'safecl[ray]'.",
    "serve.host.no-name": (
        "{host!r} is no name of a host; give one such as pets.example, without a port."
    ),
    "serve.token.form": (
        "A token has 8 ASCII letters, digits or signs, or more; the two tokens differ."
    ),
    "serve.busy": "The service has more to do than it can keep waiting; ask again later.",
    "serve.host.other": (
        "This service does not answer to that Host; start it with --allow-host NAME."
    ),
    "serve.site.other": "A page of another site asked for this, which it may not.",
    "serve.token.needed": "This needs the token: Authorization: Bearer TOKEN.",
    "serve.token.reads": "This token may ask, but not change; use the other one.",
    "serve.request.too-large": "This takes {megabytes} MB at most; send less at a time.",
    "serve.request.slow": (
        "The request was not here after {seconds:.0f} s; send it faster, or less."
    ),
    "serve.request.wrong": "{where} is not as it should be: {reason}.",
    "serve.request.kind": (
        "Send a picture as image/jpeg or another image type, or pictures as application/json."
    ),
    "serve.step.other": "That is not the last step of the model now; look at its history again.",
    "serve.picture.no-base": "Picture {place} is not in base64.",
    "serve.picture.empty": "{name} is empty; send the bytes of a picture.",
    "serve.picture.too-large": "{name} has more than {megabytes} MB; make it smaller.",
    "serve.picture.unreadable": "The picture cannot be read ({reason}).",
    "serve.picture.two-labels": "The same picture is given with two labels; omit the wrong one.",
    "serve.pictures.none-readable": "The picture cannot be read ({reason}); send another one.",
    "serve.protocol.input": (
        "The input is pictures in base64: datatype BYTES, and shape [their number]."
    ),
    "serve.protocol.unknown": (
        "The parameter unknown is a share of known pictures: 0 or more, and below 1."
    ),
    "serve.protocol.sets": "The parameter sets is a share of pictures: above 0, and below 1.",
    "serve.protocol.output": "There is no output {output!r}; choose from: {outputs}.",
    "serve.protocol.learned": "{model} has learned meanwhile: its version is {version}.",
    "serve.protocol.picture": "Picture {place} cannot be read ({reason}).",
    "serve.job.missing": "There is no such job, or it ended long ago.",
    "serve.job.not-kept": "The job cannot be kept beside the model ({reason}).",
    "serve.job.ended": "The job is {state} already.",
    "serve.job.picture": "Picture {place} cannot be read ({reason}); omit it.",
    "serve.export.gone": "This export is gone, or a newer one has its place; ask for it again.",
    "serve.jobs.busy": (
        "Another service has the jobs of {path}; stop it, or serve a copy of the model."
    ),
    "serve.model.missing": "There is no such model here; GET /api/models lists them.",
    "serve.model.new": "{model} has learned nothing yet; teach it its first classes.",
    "serve.version.missing": "{model} has no such version; its version is {version}.",
    "serve.page.missing": "There is no such file of the page.",
    "watch.no-folder": (
        "{folder} is no folder; name one that has a folder of pictures for each class."
    ),
    "watch.busy": "{folder} is watched already; stop that first.",
    "watch.two-classes": "{picture} lies in {classes}: delete it in all but one of them.",
    "mlflow.not-installed": "This needs MLflow: pip install mlflow.",
    "mlflow.other": (
        "{uri} was not logged by safecl.serve.mlflow (its flavours: {flavours}); give one that was."
    ),
    "mlflow.no-bytes": (
        "Row {row} of the column picture holds {kind}, not the bytes of a picture file; over HTTP"
        " they are in base64."
    ),
    "mqtt.not-installed": "--mqtt needs paho-mqtt: pip install 'safecl[mqtt]'.",
    "mqtt.url": "--mqtt takes the address of a broker: mqtt://USER:PASSWORD@HOST:1883, or mqtts://.",
    "mqtt.choice": "{sensor} has no picture that can be called {choice!r}; choose again.",
}
