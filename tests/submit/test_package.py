"""The archive for spark-submit: nobody else can put code of theirs into it."""

from __future__ import annotations

import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.submit.package import packaged


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rewindow"


def test_the_archive_lies_in_a_folder_that_is_closed_to_others(cache: Path) -> None:
    archive = packaged()
    assert archive.parent == cache
    assert cache.stat().st_mode & 0o777 == 0o700
    assert archive.stat().st_mode & 0o777 == 0o600
    assert "spark_jobs/submit/main.py" in zipfile.ZipFile(archive).namelist()


def test_a_folder_of_our_own_that_was_open_is_closed(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    packaged()
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["other", "truncated", "link"])
def test_what_lies_under_its_name_is_not_believed(cache: Path, tmp_path: Path, planted: str) -> None:
    archive = packaged()
    right = archive.read_bytes()
    evil = tmp_path / "evil.zip"
    evil.write_bytes(b"not ours")
    archive.unlink()
    if planted == "link":
        archive.symlink_to(evil)
    else:
        archive.write_bytes(b"not ours" if planted == "other" else right[:-100])
    assert packaged() == archive
    assert archive.read_bytes() == right
    assert not archive.is_symlink()
    assert evil.read_bytes() == b"not ours"
    assert [file.name for file in cache.iterdir()] == [archive.name], "nothing half written is left"


def test_a_link_in_the_place_of_the_folder_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.parent.mkdir()
    (tmp_path / "theirs").mkdir()
    cache.symlink_to(tmp_path / "theirs")
    with pytest.raises(EnvironmentSetupError, match="not a folder of this user alone") as refused:
        packaged()
    assert refused.value.where == str(cache)
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(cache: Path) -> None:
    cache.mkdir(parents=True)
    os.chown(cache, 65_534, 65_534)
    with pytest.raises(EnvironmentSetupError, match="not a folder of this user alone"):
        packaged()


def test_a_right_archive_is_used_again_and_many_at_once_agree(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        (archive,) = set(pool.map(lambda _: packaged(), range(8)))
    written = archive.stat().st_mtime_ns
    assert packaged() == archive
    assert archive.stat().st_mtime_ns == written
    assert [file.name for file in cache.iterdir()] == [archive.name]
