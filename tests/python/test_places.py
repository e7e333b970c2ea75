"""docs/places with the installed package: of pages whose Python blocks ask questions, all blocks run."""

import pathlib

import pytest
from conftest import COMMAND, ROOT, module_of_tests, posix_only

PAGES = sorted((ROOT / "docs/places").glob("*.md"))
places = module_of_tests("places")
asking = [
    page for page in PAGES if any(not isinstance(part, str) and places.asks(part) for part in places.parts(page.read_text(encoding="utf-8")))
]


@posix_only
@pytest.mark.skipif(COMMAND is None, reason="no command")
@pytest.mark.parametrize("page", asking, ids=lambda page: page.stem)
def test_the_blocks_run(page):
    import collections

    if "%%tessera" in page.read_text(encoding="utf-8"):
        pytest.importorskip("IPython")
    counts = collections.Counter()
    places.run_page(pathlib.Path(COMMAND), page, counts, [])
    assert counts["run"] and not counts["for tests/python"], counts


def test_there_are_such_pages():
    assert asking
