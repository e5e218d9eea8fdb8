"""Models that are kept, taught and edited: the sentence of each code."""

TABLE = {
    "model.learned-nothing": "This model has learned nothing yet; call learn first.",
    "correct.one-of-two": "Give the pictures' label, or remove=True: one of the two.",
    "correct.class.exists": (
        "There is a class {label!r} already; correct moves pictures to a class that is there."
    ),
    "correct.two-labels": "A picture is given with two labels: {pictures}; give each picture once.",
    "correct.never-learned": (
        "{count} never learned by this model: {pictures}; only learned pictures can be removed, or"
        " split from a class."
    ),
    "correct.nothing": "There is nothing to correct: {these} learned as that already.",
    "correct.learned-otherwise": (
        "Some of the pictures were not learned as {label!r} but as {others}; omit them."
    ),
    "correct.join.itself": "{label!r} cannot be joined with itself; give two classes.",
    "correct.all-removed": (
        "These are all pictures that the model has learned; delete its file to start over."
    ),
    "correct.shared-statistics": (
        "The labels of this model cannot be corrected: its learners share their statistics, and the"
        " fast one's head was solved before the slow one's features were added; roll the session"
        " back (safecl rollback), or forget the class and teach it again."
    ),
    "correct.moved-on": (
        "The {learners} learner has moved on since these pictures were learned, and their features"
        " are no longer kept: only pictures of sessions that can be rolled back can be corrected"
        " here. A model made with --memory features corrects them all."
    ),
    "correct.trained-part": (
        "The labels of this model cannot be corrected: its {part} is trained on them, and not a sum"
        " over pictures from which one could be taken out; roll the session back (safecl rollback),"
        " or forget the class and teach it again."
    ),
    "correct.unknown-part": (
        "{method} can neither forget a class nor be merged: nothing says what happens to {tensors}"
        " then; give {module} the methods of heads/protocol.py."
    ),
    "correct.not-kept": "The features of these pictures are not kept.",
    "forget.only-class": "{label!r} is the only class of the model; delete the file to forget it.",
    "forget.session-head": "{title} cannot forget a single class: a session is one head.",
    "learn.folder.other": (
        "{folder} holds other files than those of a lesson; delete it, or move it away."
    ),
    "learn.not-corrected": "{nothing} {notes}",
    "learn.diverged": (
        "{tensor} is no longer finite after this session, so the model stays as it was; lower"
        " train.lr."
    ),
    "merge.neither-holds": (
        "Neither model still holds what it has learned since they parted; merge within the sessions"
        " that are kept (--keep), or make them with --memory features and merge before both have"
        " forgotten a class or were merged."
    ),
    "merge.second-nothing": "The second model has learned nothing that the first one lacks.",
    "merge.first-nothing": (
        "The first model has learned nothing that the second one lacks; use the second model."
    ),
    "merge.corrected-twice": (
        "Both models have corrected pictures that they began with since they parted, so these would"
        " be corrected twice; roll that back in one of them, then merge."
    ),
    "merge.no-network": (
        "{title} keeps no network the same from session to session, so its models cannot be merged."
    ),
    "merge.classes-differ": (
        "The models differ in classes that both began with ({classes}): rename or forget them in"
        " both alike."
    ),
    "merge.other-first-session": (
        "The models do not share their first session, so their features differ; teach both from"
        " copies of one."
    ),
    "merge.labels-differ": (
        "Since they parted, both models have learned {count} as different classes: {labels};"
        " correct the labels in one of the two, then merge."
    ),
    "merge.differ": "The models differ in {what}, so they cannot be merged.",
    "merge.corrected-in-one": (
        "Pictures that both models began with were corrected in one of them ({steps}), so classes"
        " differ ({classes}); roll that back, merge, and correct the merged model."
    ),
    "merge.learned-twice": (
        "Both models have learned {count} since they parted, and their features are not kept;"
        " remove them from one of the two (safecl correct --remove), then merge."
    ),
    "merge.trained-part": (
        "The models cannot be merged: a {part} is trained, and two do not add up."
    ),
    "merge.cut-off": (
        "The models cannot be merged: they have cut off singular vectors, so the rest does not add"
        " up."
    ),
    "model.setting.fixed": (
        "The model was made with {key}={there}, which cannot be changed to {value}; omit it."
    ),
    "model.history.other": (
        "The model's history tells of other pictures or classes than it knows: use a copy."
    ),
    "model.name-taken": (
        "A class has the name now that a class had before; give it another one (safecl rename)"
        " first."
    ),
    "model.other-backbone": (
        "The model was taught with the backbone {name} ({key} {wanted}), and here is {other} ({key}"
        " {there}); its weights were {weights}."
    ),
    "model.history.full": (
        "The history of the model is full: a file holds {most:,} steps; teach a new model."
    ),
    "model.frozen": "This model is frozen: it only predicts; use the model it was made from.",
    "model.classes.too-many": (
        "A model knows {most:,} classes at most, and there are more in {name}."
    ),
    "model.path.folder": "{path} is a folder; give the model a file name, such as pets.safecl.",
    "model.path.suffix": "Give the model a name that ends in {suffix}, such as {stem}{suffix}.",
    "model.path.no-file": "{path} is no file that can be replaced; give the name of a file.",
    "model.replaced": (
        "{file} {done} meanwhile, so it is left as it is; the new model is in {kept}."
    ),
    "model.header.damaged": (
        "The header of the model {name} is damaged ({reason:.300}); use a copy of the file."
    ),
    "model.newer": (
        "The model {name} was written by a newer safecl ({version!s:.20}); update safecl to read"
        " it."
    ),
    "model.earlier": (
        "The model {name} has the format {format} of an early safecl ({version!s:.20}), which is no"
        " longer read; teach a new model from its pictures, or use it with that version."
    ),
    "model.settings.unreadable": (
        "The settings of the model cannot be read: {error} A newer safecl may have made it, or one"
        " with a package that is not installed here."
    ),
    "model.not-written": "The model cannot be written ({reason:.300}); use the one before.",
    "model.setting.too-large": "{key}={value} is more than a model can have ({limit:,}).",
    "model.missing.near": "There is no model {path}; {hint}",
    "model.unreadable": "The model {path} cannot be read ({reason}).",
    "model.member.damaged": (
        "The model {path} is damaged in {member}, or was changed after safecl wrote it: {reason};"
        " use a copy of the file."
    ),
    "model.foreign": "{path} is no model file of safecl, or it is damaged ({reason}).",
    "model.missing": "There is no model {path}; 'safecl learn FOLDER --model {path}' makes one.",
    "model.header.changed": (
        "The model {path} was changed after safecl wrote it: its header is not the one that was"
        " written; use a copy of the file."
    ),
    "model.thumbnails.damaged": (
        "The model {path} is damaged in {member}: a class is not there; use a copy."
    ),
    "model.exported": (
        "{path} is exported, and can only predict; give the model that it was made from."
    ),
    "model.parts.misfit": (
        "The parts of the model {path} do not fit together ({reason:.300}); use a copy of the file."
    ),
    "model.header.too-large": (
        "The history and classes would take more than {most:,} bytes; teach a new model."
    ),
    "model.member.too-large": (
        "{member} of {path} has {gigabytes:.1f} GB, more than there is memory for."
    ),
    "model.folder": "{path} is a folder; give the model file, which 'safecl learn' makes.",
    "model.run.other": (
        "{folder} holds a run with {found}; export it with the weights and pictures it began with."
    ),
    "model.member.not-finite": (
        "The model {path} is damaged in {member}: {tensor} is not finite; use a copy."
    ),
    "model.not-finite": (
        "{tensor} of the model is no longer finite, so it is not saved; use the one before."
    ),
    "rename.same": "The class is called {label!r} already.",
    "rename.taken": "There is a class {label!r} already; safecl join makes one class of two.",
    "rollback.one-session": (
        "The model cannot be rolled back: it has learned one session only; delete its file to start"
        " over."
    ),
    "rollback.not-kept": (
        "The model cannot be rolled back: no earlier session is kept; take a copy of its file, or"
        " teach a new model."
    ),
}
