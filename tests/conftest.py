"""Settings that all tests share."""

import os
import shutil
import tempfile
from importlib.util import find_spec

import pytest
import rotation
from hypothesis import settings

settings.register_profile("default", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("default")
# A separate state folder: tests neither use nor change which code this user trusts.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="pettingllms-tests-")
LACKING = {
    name: pytest.mark.skip(reason=f"needs {what}")
    for name, here, what in (
        ("verilog", shutil.which("iverilog"), "Icarus Verilog: apt install iverilog"),
        ("search-v1", find_spec("bm25s"), "bm25s: pip install 'pettingllms[search]'"),
        ("search_", find_spec("bm25s"), "bm25s: pip install 'pettingllms[search]'"),
    )
    if here is None
}


def pytest_addoption(parser: pytest.Parser) -> None:
    rotation.add_options(parser)
    parser.addoption("--faults-table", metavar="FILE", help="page for the results of `-m faults`")


def pytest_runtest_setup(item: pytest.Item) -> None:
    rotation.skip_if_late(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests of an environment whose engine is not on this machine; rotate the others."""
    rotation.shuffle(items, config.getoption("--rotate"))
    for item in items:
        for name, skip in LACKING.items():
            if f"[{name}" in item.name:
                item.add_marker(skip)
