"""Settings, presets and configurations: the sentence of each code."""

TABLE = {
    "model.tune.begun-without": (
        "This model was not tuned in its first session, whose pictures it does not keep, so it is"
        " not tuned later; teach a new model with --tune, or omit that."
    ),
    "model.tune.nothing": "{title}, as it is set, has nothing to tune here; omit --tune.",
    "model.tune.needed": (
        "{title} answers by what it trains, so it cannot do without tuning; omit --no-tune, or"
        " choose another method, such as safe."
    ),
    "setting.kind.missing": "{key} needs {key}.{tag}, which says which kind it is.",
    "setting.group": (
        "{key}={given}{where} is wrong: {key} is a group; set one of its keys, like {inner}=…."
    ),
    "setting.group.not-of-method": "{title} has no {group}, so {key} means nothing to it.",
    "setting.not-of-chosen": (
        "The setting {key!r} is not one of {owner}; safecl info --keys lists them."
    ),
    "setting.unknown": "There is no setting {key!r}; safecl info --keys lists them all.",
    "setting.word.form": (
        "{word!r} is not of the form key=value, for example seed=1 or train.epochs=5."
    ),
    "setting.word.no-value": "{key}= has no value; {hint}, or omit the word.",
    "setting.word.unreadable": "The value in {word!r} cannot be read; put quotes around it.",
    "setting.nothing-inside": "{key}={value} is wrong: {group} has no settings inside it.",
    "setting.group.contradiction": "The settings of {key} do not fit together: {message}.",
    "setting.value.wrong": "{key}={given}{where} is wrong: {reason}.",
    "setting.idle": "{key} means nothing with {other}={value}; omit it, or give {setting}.",
    "setting.idle.bare": "{key} means nothing with {other}={value}; omit it.",
    "setting.milestones.never": (
        "train.milestones={milestones} are never reached in {epochs} epochs; lower them, or raise"
        " train.epochs."
    ),
    "preset.variant.no-when": (
        "Each variant of a preset must be settings with a 'when', like {{stream: cifar100}}."
    ),
    "preset.variant.dropped": (
        "A variant sets {group}.{lost} without {group}.{tag}, so {group}={kind} would drop it;"
        " write {group}: {{{tag}: {kind}, {lost}: {value}}}."
    ),
    "config.missing": "The configuration {source} does not exist.",
    "config.unreadable": "The configuration {source} cannot be read ({error}).",
    "config.stream-as-preset": (
        "{source!r} is a stream and no preset; write safecl run safe stream={stream}."
    ),
    "config.yaml.invalid": "{source} is not valid YAML{where}: {reason}.",
    "config.yaml.no-keys": "{source} must hold keys and values, not a {name}.",
    "setting.contradict": (
        "{other}={there} and {name}={value} contradict each other; give one of them."
    ),
    "setting.no-training": "{title} does not train{why}, so {key} means nothing.",
    "setting.pilot.earlier": (
        "method.pilot is now a switch for each decision: give method.pilots.epochs=SHARE for its"
        " number, and for 0 method.pilots.use=false, method.limit.use=false,"
        " method.average.use=false, method.release.use=false and method.untuned.use=false."
    ),
    "setting.no-later-training": (
        "{title} trains in the first session alone, so {key} means nothing."
    ),
}
