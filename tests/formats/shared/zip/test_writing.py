"""Archives that are laid out beforehand are what Python's own reader takes for one."""

import io
import zipfile
import zlib

from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.formats.shared.zip.writing import CRC_AT, archive_end, placed

names = st.text(st.characters(codec="utf-8", exclude_characters="\0/\\"), min_size=1, max_size=8)


@given(members=st.dictionaries(names, st.binary(max_size=40), max_size=5), comment=st.binary(max_size=20))
def test_members_lie_where_the_archive_says(members: dict[str, bytes], comment: bytes) -> None:
    places = placed((name.encode(), len(data)) for name, data in members.items())
    crcs = [zlib.crc32(data) for data in members.values()]
    made = b""
    for place, crc, data in zip(places, crcs, members.values(), strict=True):
        assert len(made) == place.header
        made += place.local_header(crc)
        assert len(made) == place.start
        assert made[place.header + CRC_AT :][:4] == crc.to_bytes(4, "little")
        made += data
        assert len(made) == place.stop
    made += archive_end(places, crcs, comment)
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        assert file.testzip() is None
        assert {name: file.read(name) for name in file.namelist()} == members
        assert file.comment == comment


def test_large_members_have_zip64_fields() -> None:
    first, second = placed([(b"a", 5 << 30), (b"b", 1)])
    assert first.stop == second.header > 5 << 30
    assert (5 << 30).to_bytes(8, "little") in first.local_header(0)
    assert second.local_extra == b""
    assert second.header.to_bytes(8, "little") in second.entry(0)
