"""Where documents may be written."""

from pathlib import Path

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.document_paths import check_documents


@pytest.mark.parametrize(
    ("documents", "paths"),
    [
        (["x.json"], ["x.json"]),  # over a source
        (["src/x.json"], ["src"]),  # into one
        (["x.json", "x.json"], []),  # over the other document
        ([None, "x.json"], [None, "a", "x.json"]),  # whatever was not asked for
    ],
)
def test_documents_are_written_over_nothing_else(
    documents: list[str | None], paths: list[str | None], tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    given, others = ([one and str(tmp_path / one) for one in listed] for listed in (documents, paths))
    with pytest.raises(UsageError, match="a document cannot be written over or into"):
        check_documents(given, others)


def test_documents_beside_all_else_are_fine(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "old.json").write_text("{}")
    check_documents([tmp_path / "a.json", None, tmp_path / "old.json"], [tmp_path / "src", None])
    assert (tmp_path / "old.json").read_text() == "{}"
    assert not (tmp_path / "a.json").exists()
