"""Streams and pictures: the sentence of each code."""

TABLE = {
    "picture.unreadable": "The picture {where} cannot be read ({reason}); {remedy}.",
    "stream.order-seed.idle": "{key} means nothing with {other}={name}; omit it.",
    "stream.size.range": "The side of the inputs must be 1 or more, not {size}.",
    "stream.glyphs.nothing-to-check": (
        "The glyphs stream is drawn while it is read, so there is nothing to check."
    ),
    "stream.test-fraction.range": (
        "stream.test_fraction must be at least 0 and below 1, not {fraction}."
    ),
    "stream.pictures.none-readable": (
        "No{part} picture of {where} can be read; the first is {first}."
    ),
    "stream.held-out.range": "stream.held_out must be at least 0 and below 1, not {held_out}.",
    "stream.key.idle": (
        "stream.{key} has no effect where stream.protocol is {chosen} ({name}); omit it."
    ),
    "stream.order.twice": "stream.order names the class {label!r} twice.",
    "stream.domains.none": (
        "stream.protocol={protocol} needs domains ({needed}), and {name} has none."
    ),
    "stream.domains.not-once": "stream.domains must name each domain to learn once.",
    "dataset.source.missing": "There is no archive or folder {path}.",
    "dataset.archive.not-whole": (
        "{path} is neither a zip nor a tar archive, or it is not whole; fetch it again."
    ),
    "dataset.archive.unsafe": (
        "This Python does not unpack {path} safely; unpack it, and give the folder."
    ),
    "dataset.archive.damaged": (
        "The archive {path} cannot be unpacked ({error}); remove it and fetch it again."
    ),
    "dataset.files.lacking": "{path} lacks {missing} of {name} as it is published.",
    "dataset.files.not-published": (
        "{place} does not hold the published files; remove it and prepare {name} again."
    ),
    "dataset.source.not-published": (
        "{path} cannot be read as torchvision's {reader} is published ({reason}); fetch it again."
    ),
    "dataset.not-prepared": "{title} is not in {root}; {other}, or {fetch}",
    "dataset.no-test": (
        "{place} has no folder test, or classes in it that train lacks; prepare {name} again."
    ),
    "dataset.download.by-hand": "{title} needs a person to fetch it: {fetch}",
    "dataset.download.web-page": (
        "{url} answers with a web page and not with the file; fetch it by hand."
    ),
    "dataset.download.checksum": (
        "{url} is not the published file (its md5 differs); try again or fetch it by hand."
    ),
    "dataset.download.failed": (
        "{url} cannot be fetched ({error}); run the command again, or fetch it by hand."
    ),
    "dataset.source.no-folders": "{path} has no folders train/CLASS and test/CLASS with pictures.",
    "dataset.source.no-split": "{path} lists {name}, but its split is missing; fetch it again.",
    "dataset.domainnet.lacking": "DomainNet is prepared from {needed}; missing: {missing}.",
    "dataset.domains.lacking": "{path} lacks the folders {missing} of {title}.",
    "dataset.source.no-picture": "{path} lists {name}, but the picture is missing; fetch it again.",
    "dataset.not-written": "{title} cannot be written to {root}: {reason}.",
    "dataset.archive.not-published": (
        "{path} is not the published {name}: {why}; fetch it again, or unpack it and give the"
        " folder."
    ),
    "stream.font.missing": (
        "The stream needs the font {path} (missing or unreadable); reinstall matplotlib."
    ),
    "stream.glyphs.styles": (
        "stream.styles of glyphs goes with stream.protocol=class, a style for each session."
    ),
    "stream.glyphs.classes": (
        "stream.classes of glyphs must be between 1 and {most}, not {classes}."
    ),
    "stream.glyphs.sessions": (
        "stream.sessions={sessions} of glyphs does not fit here; {most} does."
    ),
    "name.number.too-large": "A class is too large a number; use one of 64 bits, or a word.",
    "name.empty": "A {what} needs a name; an empty one was given.",
    "name.too-long": "The {what} name {start}… has {length} characters; use {most} at most.",
    "name.slash": "The class name {label!r} holds a slash; use another name.",
    "name.spaces": "The {what} name {label!r} begins or ends with a space; use another name.",
    "pictures.cache.size": "SAFECL_CACHE_GB must be a number of gigabytes, not {said!r}.",
    "pictures.shape": "Pictures must be (N, H, W), (N, H, W, 3) or (N, 3, H, W), not {shape}.",
    "pictures.values": "The values of {name} must be {types}; they are {seen}: {remedy}.",
    "picture.changed": (
        "The picture {where} has changed or gone during the run; leave the data alone meanwhile."
    ),
    "pictures.none": "There is no picture in {path}.",
    "pictures.folder.unreadable": "The folder {path} cannot be read: {reason}.",
    "pictures.folder.missing": (
        "There is no folder {folder}; give the folder that holds the class folders."
    ),
    "pictures.folder.no-classes": (
        "There is no picture in a class folder of {folder}; expected {folder}/CLASS/PICTURE."
    ),
    "pictures.folder.no-test": (
        "There is no picture in a class folder of {folder}; fill it or remove it."
    ),
    "pictures.folder.stray": (
        "The picture {path} is in no class folder; expected {folder}/{wanted}."
    ),
    "pictures.shards.twice": (
        "The shards of {place} hold two pictures {name}; rename or remove one."
    ),
    "pictures.shard.unreadable": (
        "The shard {path} cannot be read ({why}); make it again, uncompressed."
    ),
    "stream.name.cut": "The stream {text!r} lacks what comes after the colon: write {form}.",
    "stream.name.folder": (
        "There is no stream {text!r}, but there are pictures: write folder:{text}."
    ),
    "stream.name.table": "There is no stream {text!r}, but there is such a file: write csv:{text}.",
    "stream.glyphs.cut": (
        "stream.{name}: the glyphs stream is cut by stream.classes and stream.sessions."
    ),
    "stream.sessions.cut": "stream.sessions: a {kind} stream is cut by {keys}.",
    "stream.key.unknown": "There is no setting 'stream.{name}' of a {kind} stream; {hint}",
    "stream.key.missing": "stream.{name} is missing: {description}.",
    "hub.no-train": "The dataset {title} has no split train; it has: {splits}.",
    "hub.datasets.missing": (
        "Hugging Face data needs the datasets package: pip install 'safecl[datasets]'."
    ),
    "hub.not-loaded": "The Hugging Face dataset {name!r} cannot be loaded: {reason}.",
    "hub.column.missing": "The dataset {title} has no column {given!r}; it has: {columns}.",
    "hub.column.none": (
        "The dataset {title} has no usual {what} column; set stream.{what}=NAME, one of: {columns}."
    ),
    "pictures.labels.own": (
        "A folder, a table or a stream has labels of its own; omit those beside it, or give a list"
        " of pictures."
    ),
    "pictures.labels.count": (
        "There are {pictures} pictures and {labels} labels; give one label per picture."
    ),
    "pictures.label.several": (
        "The label of {name} has {size} numbers; give one per picture, such as the largest's place."
    ),
    "pictures.label.type": "The label of {name} is {value!r}; {remedy}.",
    "table.missing": "There is no table {table}; give a CSV file with the columns path and label.",
    "table.column.missing": (
        "The table {table} has no column {needed!r}; its columns are: {columns}."
    ),
    "table.empty": "The table {table} lists no picture.",
    "table.no-train": "The table {table} has no row of the split train.",
    "table.not-utf": "The table {table} is not UTF-8 text; save it as UTF-8.",
    "table.not-csv": "The table {table} is not CSV: {error} in row {row}.",
    "table.row.no-path": "Row {number} of the table {table} has no path.",
    "table.row.no-label": "Row {number} of the table {table} has no label ({path}).",
    "table.row.no-domain": "Row {number} of the table {table} has no domain ({path}).",
    "table.row.split": (
        "Row {number} of the table {table} has the split {split!r}; use {train}, {test}."
    ),
    "stream.empty": "The stream {name!r} has no sessions: there are no pictures to learn from.",
    "stream.session.unknown": (
        "The stream {name!r} has sessions 1 to {last}: there is no session {number}."
    ),
    "stream.part.unknown": "The stream {name!r} has parts 1 to {last}: there is no part {number}.",
    "stream.session.no-class": (
        "A session needs a class: stream.first={first} and stream.step={step} must be 1 or more."
    ),
    "stream.test-fraction.idle": (
        "{where} has test pictures of its own, so stream.test_fraction={fraction} means nothing;"
        " omit it."
    ),
    "stream.class.untrained": (
        "The class {label!r} of {where} has test pictures but no training picture."
    ),
    "stream.size.other": (
        "The stream {name!r} is for inputs of {own} × {own} pixels, and the backbone takes {size} ×"
        " {size}; open it without a size, or set backbone.image_size."
    ),
    "pictures.two-classes": "The same picture is in two classes: {names}; {way}.",
    "pictures.unreadable": "{pictures} cannot be read: {names}; remove or replace {them}{hint}.",
    "name.hidden": (
        "The {what} name '{label}' holds a control, bidirectional or zero-width character; use"
        " another name."
    ),
    "name.of.not-utf": "The name of the {what} {label!r} of {name} is not valid UTF-8; rename it.",
    "name.of.hidden": (
        "The {what} '{label}' of {name} holds a control, bidirectional or zero-width character;"
        " rename it."
    ),
    "name.like-known": "The {what} {other!r} and the known {one!r} {why}; did you mean {one!r}?",
    "name.alike": "The {several} {one!r} and {other!r} of {name} {why}; use one name for both.",
    "pictures.none-given": "There is no picture to learn from: an empty collection was given.",
    "pictures.no-picture": "A {name} is no picture; give paths, images, arrays or a dataset.",
    "pictures.loader": (
        "A DataLoader hands out batches of pictures; give the pictures themselves: loader.dataset."
    ),
    "pictures.forms": (
        "Picture {place} is a {kind}, and others are paths; give all pictures in one form."
    ),
    "pictures.no-pairs": "A list of pictures to learn from must hold pairs (picture, label).",
    "pictures.labels.missing": (
        "There are no labels for the pictures, which are of type {given}; {remedy}."
    ),
    "pictures.folder.picture": (
        "{path} is a picture; give a folder with one folder of pictures per class."
    ),
    "pictures.source.unknown": (
        "{path} is neither a folder of class folders nor a CSV table or tar shard."
    ),
}
