"""docs/places with the installed package: of pages whose Python blocks ask questions, all blocks run."""

import collections
import pathlib

import pytest
from conftest import COMMAND, ROOT, module_of_tests, posix_only

pytest.importorskip("tomllib")  # of Python 3.11
PAGES = sorted((ROOT / "docs/places").glob("*.md"))
places = module_of_tests("places")


def blocks(page):
    return [part for part in places.parts(page.read_text(encoding="utf-8")) if not isinstance(part, str)]


asking = [page for page in PAGES if any(map(places.asks, blocks(page)))]


@posix_only
@pytest.mark.skipif(COMMAND is None, reason="no command")
@pytest.mark.parametrize("page", asking, ids=lambda page: page.stem)
def test_the_blocks_run(page):
    if "%%tessera" in page.read_text(encoding="utf-8"):
        pytest.importorskip("IPython")
    counts = collections.Counter()
    places.run_page(pathlib.Path(COMMAND), page, counts, [])
    assert counts["run"] and not counts["for tests/python"], counts


def test_there_are_such_pages():
    assert asking
