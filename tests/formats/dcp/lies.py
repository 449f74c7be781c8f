"""Distributed checkpoints of PyTorch that are not what they say."""

import os

from tests.formats.dcp.lying import (
    HALVES,
    SYSTEM,
    chunks,
    cut,
    damage,
    deflated,
    entry,
    fields,
    lie,
    link_metadata_out,
    link_out,
    long_paths,
    metadata,
    more,
    path,
    pipe,
    placed,
    sparse,
    stored,
    tensor,
)
from tests.formats.dcp.parts import (
    DATA,
    LAYOUT,
    METADATA,
    OBJECT,
    described,
    index,
    place,
    properties,
    record,
)
from tests.formats.torch.pickles import Call, Name, Raw, code, document

PICKLES = (
    metadata("metadata of nothing", r"\.metadata: it is not a valid pickle", b""),
    metadata(
        "metadata that runs a command", "asks for `os.system`, which metadata", document(Call(SYSTEM, ("x",)))
    ),
    metadata("metadata that is a dictionary", "type dict, not an instance", document({})),
    metadata(
        "metadata of another class",
        "is an instance of .*StorageMeta`, not",
        document(record("StorageMeta", {})),
    ),
    more("a command beside what is needed", "asks for `posix.system`", Call(Name("posix", "system"), ("x",))),
    more("a class that is called", "it calls `.*metadata.Metadata`", Call(Name(METADATA, "Metadata"), ())),
    more(
        "an instance made with arguments",
        "makes an instance of `.*StorageMeta`",
        Raw(code(Name(METADATA, "StorageMeta")) + code((1,)) + b"\x81"),
    ),
    more("something persistent", "asks for a value of type str outside of it", Raw(code("x") + b"Q")),
    more("a path of numbers", "not made of texts", Call(Name("pathlib", "PosixPath"), (1,))),
    more(
        "an enumeration by name",
        "not made of its number",
        Call(Name(METADATA, "_MEM_FORMAT_ENCODING"), ("x",)),
    ),
    damage("metadata of 200 megabytes", "209715200 bytes; 134217728 is the limit", sparse),
    damage(
        "no metadata", "metadata does not exist\n.*written last", lambda path: (path / ".metadata").unlink()
    ),
    damage("metadata elsewhere", "outside the checkpoint", link_metadata_out),
)
TENSORS = (
    entry("no description", "`w`: its description is a value of type NoneType", None),
    tensor(
        "no dtype",
        "its dtype is a value of type NoneType",
        properties=record("TensorProperties", (None,)),
        size=(),
        chunks=[],
    ),
    tensor(
        "a sparse layout",
        "has the layout `torch.sparse_coo`",
        properties=properties("int32", Call(LAYOUT.function, ("torch.sparse_coo",))),
    ),
    tensor("no properties", "record of its properties is a value of type NoneType"),
    tensor("no size", "its size is not a shape", properties=properties("int32")),
    entry("a size that is negative", "not made of sizes", described("int32", (4, -6), HALVES)),
    entry("a size beyond all memory", "`w`: it has a shape beyond all", described("int32", (2**62,), [])),
    entry(
        "a size of a petabyte",
        "`w`: no chunk has the element .3, 0.",
        described("int32", (2**48, 6), [((0, 0), (3, 6))]),
    ),
    entry(
        "too many axes",
        "has 40 axes; 32 is the limit",
        described("int32", (1,) * 40, [((0,) * 40, (1,) * 40)]),
    ),
    tensor(
        "chunks that are no list",
        "its chunks are not a list",
        properties=properties("int32"),
        size=(4,),
        chunks=None,
    ),
    tensor(
        "a chunk that is a tuple",
        "a chunk is a value of type tuple",
        properties=properties("int32"),
        size=(4,),
        chunks=[(0, 4)],
    ),
    entry("an object in place of a tensor", "does not have its place", OBJECT),
    entry(
        "another dtype than stored",
        "is float32.2,6., but .* has int32.2,6. at byte 0",
        described("float32", (4, 6), HALVES),
    ),
    chunks(
        "a chunk beyond the end", r"chunk of \[3, 6\] at \[2, 0\] is not within", HALVES[0], ((2, 0), (3, 6))
    ),
    chunks("a chunk of fewer axes", "is not within", HALVES[0], ((2,), (2,))),
    chunks(
        "a chunk twice",
        r"2 chunks have the element \[0, 0\] of \[4, 6\]: those of \[2, 6\] at \[0, 0\] and",
        HALVES[0],
        HALVES[0],
        HALVES[1],
    ),
    chunks("a hole", r"no chunk has the element \[2, 0\] of \[4, 6\]", HALVES[0], ((3, 0), (1, 6))),
    chunks("no chunk", r"no chunk has the element \[0, 0\]"),
    chunks(
        "another shape than stored",
        r"chunk of \[3, 6\] at \[0, 0\] is int32\[3,6\], but",
        ((0, 0), (3, 6)),
        ((3, 0), (1, 6)),
    ),
    lie(
        "a chunk without a place",
        r"does not have the place of its chunk at \[2, 0\]",
        lambda parts: parts.places.pop(("w", (2, 0))),
    ),
    lie(
        "as many chunks as no one has",
        "are too many to check",
        lambda parts: (
            parts.entries.update(x=described("int8", (2,) * 8, [((i % 2,) * 8, (1,) * 8) for i in range(2)]))
            or parts.places.update({("x", (i,) * 8): (DATA, 0, 1) for i in range(2)})
        ),
    ),
)
PLACES = (
    placed("a file outside", "should be in `../x`, which is not a plain file name", ("../x", 0, 9)),
    placed("a file of an absolute path", "`/etc/passwd`, which is not a plain", ("/etc/passwd", 0, 9)),
    placed("a file of a backslash", "not a plain", ("a\\b", 0, 9)),
    placed("the directory above", "not a plain", ("..", 0, 9)),
    placed("a name that is no Unicode", "surrogate", ("\ud800", 0, 9)),
    placed("a file that is missing", "cannot be read: No such file", ("__9_0.distcp", 0, 9)),
    placed("a name that is too long", "not a plain file name", ("x" * 5000, 0, 9)),
    placed("an offset beyond the end", "bytes, but 9 belong at byte 4611686018427387904", (DATA, 2**62, 9)),
    placed("a negative offset", "not a file, an offset and a length", (DATA, -1, 9)),
    placed("an offset that is a truth", "not a file, an offset and a length", (DATA, True, 9)),
    placed("no length", "from byte 0 on: is not a zip archive", (DATA, 0, 0)),
    placed("a place that is too short", "no end of a zip archive", (DATA, 0, 1500)),
    placed("the place of the other chunk and the next", "its archive", (DATA, 0, 3000)),
    placed("a place that is a tuple", "its place is a value of type tuple", Raw(code((1, 2)))),
    placed(
        "a transform",
        r"through transforms \(zstd\), which are not undone\n.*without `_extensions`",
        place(DATA, 0, 9, transform_descriptors=["zstd"]),
    ),
    fields("places by names", "a key of `storage_data` is a value", storage_data={"w": 1}),
    fields(
        "a place of no name",
        "does not have a name and offsets",
        storage_data=Raw(b"}(" + code(index(None)) + b"K\x01u"),
    ),
    fields("entries that are a list", "not a dictionary by names", state_dict_metadata=[]),
    damage("a data file elsewhere", "outside the checkpoint", link_out),
    damage("a data file that is a pipe", "not a regular file", pipe),
    damage("a data file cut by one byte", "belong at byte", lambda path: cut(path, DATA, 1)),
)
ARCHIVES = (
    stored(
        "an archive whose data is compressed", "data/0` is compressed, which torch never does", deflated()
    ),
    stored("an archive of a number", "but .* has a value of type int", 3),
    stored("an archive of a function", "asks for `posix.system`", os.system),
    stored("bytes of no kind", "is not a zip archive", b"\xff" * 2000),
)
KEYS = (
    path("a path that is a text", "`w`: its path in `planner_data`", "a.b"),
    path("a path of nothing", "its path in `planner_data`", ()),
    path("a path with a negative index", "its path in `planner_data`", ("a", -1)),
    path("a path of many components", "nested more than 64 deep", ("a",) * 65),
    path("a path that is no Unicode", "`w`: has half of a surrogate", ("\ud800",)),
    lie(
        "one path twice",
        r"`a\\/b`: two leaves have this key",
        lambda parts: parts.paths.update(w=("a", "b"), step=("a/b",)),
    ),
    lie("one path of a megabyte, three hundred times", "keys are longer together", long_paths),
)
LIES = (*PICKLES, *TENSORS, *PLACES, *ARCHIVES, *KEYS)
