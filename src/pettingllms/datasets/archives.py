"""ZIP files of data sets, unpacked without trusting their names or sizes."""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from pettingllms.datasets.store import safe_name
from pettingllms.errors import DataError

MAX_FILES = 100_000
MAX_RATIO = 200
"""Maximum unpacked bytes for each byte of the archive, against decompression bombs."""


def unpack(archive: Path, folder: Path, wanted: Callable[[str], bool]) -> list[str]:
    """Unpack the wanted files; their names without the folder at the top of the archive."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _check_sizes(archive, members)
            found = [(_inner(archive, member), member) for member in members if not member.is_dir()]
            for name, member in found:
                if wanted(name):
                    _write(opened, member, folder / name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DataError(
            f"{archive} is not a complete ZIP file ({error}); remove it and download again"
        ) from None
    return [name for name, _ in found if wanted(name)]


def _check_sizes(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    total, limit = sum(one.file_size for one in members), archive.stat().st_size * MAX_RATIO
    if len(members) > MAX_FILES or total > limit:
        raise DataError(
            f"{archive} holds {len(members):,} files of {total:,} bytes; at most {MAX_FILES:,} "
            f"files and {limit:,} bytes are unpacked"
        )


def _inner(archive: Path, member: zipfile.ZipInfo) -> str:
    """The name in the archive's top folder; DataError if it leads out of the folder."""
    try:
        name = safe_name(member.filename)
        inner = safe_name(name.partition("/")[2] or name)
    except ValueError as error:
        raise DataError(f"{archive}: {error}; nothing of it is used") from None
    if stat.S_ISLNK(member.external_attr >> 16):
        raise DataError(f"{archive}: '{name}' is a link; nothing of it is used")
    return inner


def _write(opened: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path) -> None:
    # zipfile stops at the size that the member declares, which was checked, and checks its CRC.
    place.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(member) as source, place.open("wb") as target:
        shutil.copyfileobj(source, target)
