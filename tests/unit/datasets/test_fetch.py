"""Data sets are downloaded by the hub's own client from a hub on loopback; training reads them."""

import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import TOKEN, Hub, hub_running

pytest.importorskip("huggingface_hub", reason="needs the extra `data`")
duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")

from huggingface_hub import file_download

from pettingllms.datasets import archives, fetch, load, sources
from pettingllms.datasets.fetch import get_data
from pettingllms.datasets.published import published
from pettingllms.datasets.store import data_folder, read_record, safe_name
from pettingllms.errors import DataError, HubError

CARD = b"---\nlicense: mit\n---\n# data\n"
TRAIN = [{"question": f"What is {n}+{n}?", "answer": f"It is\n#### {2 * n}"} for n in range(40)]
TEST = [{"question": f"What is {n}*{n}?", "answer": f"It is\n#### {n * n}"} for n in range(2, 9)]
TRAIN_FILE = "main/train-00000-of-00001.parquet"


def lines(rows: list[dict]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def parquet(rows: list[dict], folder: Path) -> bytes:
    (folder / "rows.jsonl").write_bytes(lines(rows))
    duckdb.connect().execute(
        f"copy (from read_json('{folder / 'rows.jsonl'}')) to '{folder / 'rows.parquet'}'"
    )
    return (folder / "rows.parquet").read_bytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A hub with GSM8K in its published layout, and data sets of other people."""
    from huggingface_hub import constants

    with hub_running() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("PETTINGLLMS_DATASETS", str(tmp_path / "data"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr("time.sleep", lambda _: None)
        files = {TRAIN_FILE: parquet(TRAIN, tmp_path), "README.md": CARD, "load.py": b"raise 1"}
        files["main/test-00000-of-00001.parquet"] = parquet(TEST, tmp_path)
        found.add("openai/gsm8k", files, "dataset")
        mine = {"train.jsonl": lines(TRAIN), "test.jsonl": lines(TEST), "README.md": CARD}
        found.add("lab/sums", mine, "dataset")
        yield found


def paths(hub: Hub) -> list[str]:
    return [path for _, path, _ in hub.seen if "/resolve/" in path]


def test_a_named_set_is_downloaded_verified_recorded_and_read(hub: Hub) -> None:
    record = get_data("gsm8k")
    assert (record.origin, record.license) == ("openai/gsm8k", "mit")
    assert record.revision == hub.repos["datasets/openai/gsm8k"].sha
    assert sorted(record.splits) == ["test", "train"]
    assert len(record.files[TRAIN_FILE].sha256) == 64
    assert read_record(data_folder() / "gsm8k") == record
    assert not list((data_folder() / "gsm8k").rglob("*.py")), "scripts are never downloaded"
    assert not list((data_folder() / "gsm8k").rglob("*.part"))
    assert len(load("gsm8k")) == 40
    assert load("gsm8k", "test")[0].answer == "4"
    assert len(load("gsm8k:test?rows=2..5")) == 3
    assert load("gsm8k")[0].id == f"{TRAIN_FILE}:1"


def test_what_is_complete_is_not_downloaded_again_and_what_changed_is(hub: Hub) -> None:
    get_data("gsm8k")
    hub.seen.clear()
    said: list[str] = []
    get_data("gsm8k", notify=said.append)
    assert not paths(hub)
    assert "complete" in said[-1]
    (data_folder() / "gsm8k" / TRAIN_FILE).write_bytes(b"changed")
    get_data("gsm8k")
    assert len(paths(hub)) == 1
    assert len(load("gsm8k")) == 40


def test_a_split_alone_is_downloaded_and_the_other_is_told(hub: Hub) -> None:
    get_data("gsm8k:test")
    assert len(paths(hub)) == 1
    assert len(load("gsm8k", "test")) == 7
    with pytest.raises(DataError, match="has no train split .*run `pettingllms data get gsm8k`"):
        load("gsm8k")


def test_training_never_downloads(hub: Hub) -> None:
    for name in ("gsm8k", "hf:lab/sums", "humaneval"):
        with pytest.raises(DataError, match=f"not on this machine .*data get {name}`"):
            load(name) if name != "humaneval" else sources_read(name)
    assert not hub.seen


def sources_read(name: str) -> None:
    from pettingllms.datasets.code_formats import read_problems

    read_problems(name, "test")


def test_any_data_set_of_the_hub_is_read_with_a_column_map(hub: Hub) -> None:
    rows = [{"prompt_text": "What is 1+1?", "target": 2}, {"prompt_text": "And 2?", "target": "3"}]
    hub.add("lab/own", {"data/all.jsonl": lines(rows), "evil.pkl": b"x"}, "dataset")
    assert sorted(get_data("hf:lab/own").files) == ["data/all.jsonl"]
    found = load("hf:lab/own?question=prompt_text&answer=target")
    assert [(one.question, one.answer) for one in found] == [("What is 1+1?", "2"), ("And 2?", "3")]
    with pytest.raises(DataError, match="name the columns in the source"):
        load("hf:lab/own")
    with pytest.raises(DataError, match="has no 'nothing'"):
        load("hf:lab/own?question=nothing")


def test_configurations_of_a_card_are_parts(hub: Hub) -> None:
    card = (
        "---\nlicense: apache-2.0\nconfigs:\n"
        "- config_name: easy\n  data_files:\n  - split: train\n    path: easy/*.jsonl\n"
        "- config_name: hard\n  data_files:\n  - split: test\n    path: hard/x-*\n---\n"
    )
    files = {
        "README.md": card.encode(),
        "easy/a.jsonl": lines(TRAIN),
        "hard/x-1.jsonl": lines(TEST),
    }
    hub.add("lab/two", files, "dataset")
    with pytest.raises(HubError, match="has several; write hf:lab/two/CONFIG, .* easy, hard"):
        get_data("hf:lab/two")
    assert get_data("hf:lab/two/hard").license == "apache-2.0"
    assert len(load("hf:lab/two/hard", "test")) == 7


def test_an_interrupted_download_goes_on_where_it_stopped(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = hub.repos["datasets/lab/sums"].files["train.jsonl"]
    real = file_download.http_get

    def killed(url: str, file, **options) -> None:
        file.write(raw[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(file_download, "http_get", killed)
    with pytest.raises(KeyboardInterrupt):
        get_data("hf:lab/sums:train")
    with pytest.raises(DataError, match="not on this machine"):
        load("hf:lab/sums")
    monkeypatch.setattr(
        file_download,
        "http_get",
        lambda url, file, **options: (
            resumed.append(options["resume_size"]) or real(url, file, **options)
        ),
    )
    resumed: list[int] = []
    get_data("hf:lab/sums:train")
    assert resumed == [100]
    assert len(load("hf:lab/sums")) == 40


def test_a_connection_that_breaks_is_resumed_by_the_client(hub: Hub) -> None:
    hub.cut["train.jsonl"] = 300
    get_data("hf:lab/sums")
    assert len([path for path in paths(hub) if "train" in path]) == 2
    assert len(load("hf:lab/sums")) == 40


def failing(name: str, **options) -> str:
    with pytest.raises((HubError, DataError)) as caught:
        get_data(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


def test_truncated_data_is_told_and_nothing_is_recorded(hub: Hub) -> None:
    hub.served["train.jsonl"] = lines(TRAIN)[:200]
    assert "is truncated" in failing("hf:lab/sums")
    assert read_record(data_folder() / "hf/lab/sums") is None
    hub.served.clear()
    get_data("hf:lab/sums")
    assert len(load("hf:lab/sums")) == 40


@pytest.mark.parametrize("name", ["hf:lab/sums", "gsm8k"])
def test_bytes_that_do_not_have_the_listed_hash_are_not_kept(name: str, hub: Hub) -> None:
    for repo in list(hub.repos.values()):
        hub.served |= {file: raw[::-1] for file, raw in repo.files.items()}
    assert "is corrupt: its hash" in failing(name)
    assert not [path for path in data_folder().rglob("*") if path.is_file()]


def test_a_malformed_file_is_told_by_file_and_row(hub: Hub) -> None:
    hub.add("lab/bad", {"train.jsonl": lines(TRAIN[:2]) + b'{"question": \n'}, "dataset")
    get_data("hf:lab/bad")
    with pytest.raises(DataError, match=r"train\.jsonl, row 3: not JSON"):
        load("hf:lab/bad")
    hub.add("lab/not", {"train.parquet": b"PAR1 no"}, "dataset")
    get_data("hf:lab/not")
    with pytest.raises(DataError, match=r"train\.parquet, row 1: not parquet"):
        load("hf:lab/not")


def test_a_moved_repository_is_followed_and_told(hub: Hub) -> None:
    hub.repos["datasets/lab/gsm8k-new"] = hub.repos.pop("datasets/openai/gsm8k")
    hub.moved["openai/gsm8k"] = "lab/gsm8k-new"
    said: list[str] = []
    record = get_data("gsm8k", notify=said.append)
    assert said[0] == (
        "openai/gsm8k has moved: the hub now calls it lab/gsm8k-new; downloading from there"
    )
    assert record.origin == "lab/gsm8k-new"
    assert len(load("gsm8k")) == 40


def test_gated_private_and_missing_data_are_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["datasets/lab/sums"].gated = True
    message = failing("hf:lab/sums")
    assert "lab/sums is gated; accept its terms at http" in message
    assert "hf auth login" in message
    assert "has no dataset lab/nothing, or it is private" in failing("hf:lab/nothing")
    assert "has no such revision" in failing("hf:lab/sums@0123abc")
    hub.broken = "/api/datasets/lab/sums"
    assert "answered 500" in failing("hf:lab/sums")
    hub.broken = ""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    get_data("hf:lab/sums")
    assert TOKEN not in (data_folder() / "hf/lab/sums/source.json").read_text()


def test_a_hub_that_is_not_there_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be reached" in failing("hf:lab/sums")


def test_sizes_and_layouts_that_were_not_expected_are_told(hub: Hub) -> None:
    assert "more than 1e-06; add --max-gb" in failing("hf:lab/sums", max_gb=1e-6)
    hub.add("openai/openai_humaneval", {"moved/elsewhere.jsonl": b"{}"}, "dataset")
    message = failing("humaneval")
    assert "no file for the test split; it has moved/elsewhere.jsonl" in message


def test_names_of_files_cannot_leave_the_folder(hub: Hub) -> None:
    for name in ("../x", "/etc/x", "a/../../x", "a\\x", "a\nx", "", "source.json", "./x"):
        with pytest.raises(ValueError, match="unsafe file name"):
            safe_name(name)
    hub.add("lab/evil", {"../../train.jsonl": lines(TRAIN)}, "dataset")
    assert "unsafe file name" in failing("hf:lab/evil")
    assert not data_folder().exists()


LEVEL = "#####\n#@$.#\n#####\n"


def zipped(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


@pytest.fixture
def boxoban(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    table = dict(published())
    table["boxoban"] = replace(table["boxoban"], archive=f"{hub.url}/archives/levels.zip")
    monkeypatch.setattr(sources, "published", lambda: table)
    return hub


def test_an_archive_is_unpacked_and_its_levels_are_tasks(boxoban: Hub) -> None:
    from pettingllms.envs import make_env

    wide = [LEVEL.replace("\n#@$.#\n", f"\n#@$.#\n{'#---#' + chr(10)}" * n) for n in (1,)]
    other = f"; 0\n{wide[0]}\n; 1\n{LEVEL.replace('@$.', '.$@')}"
    names = {"train": f"; 0\n{LEVEL}\n; 1\n{LEVEL}", "test": other}
    files = {f"levels-master/unfiltered/{split}/000.txt": text for split, text in names.items()}
    boxoban.archives["levels.zip"] = zipped({**files, "levels-master/run.py": "raise 1"})
    record = get_data("boxoban")
    assert sorted(record.files) == ["unfiltered/test/000.txt", "unfiltered/train/000.txt"]
    env = make_env("sokoban-v1", data="boxoban", test_data="boxoban")
    assert [len(env.tasks(split)) for split in ("train", "test")] == [2, 2]
    assert not {t.id for t in env.tasks("train")} & {t.id for t in env.tasks("test")}


def test_archives_that_are_unsafe_or_broken_are_told(
    boxoban: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "levels-master/unfiltered/train/000.txt"
    boxoban.archives["levels.zip"] = zipped({place: LEVEL, "levels-master/../../x.txt": "x"})
    with pytest.raises(DataError, match="unsafe file name"):
        get_data("boxoban")
    boxoban.archives["levels.zip"] = zipped({place: LEVEL})[:-30]
    with pytest.raises(DataError, match="not a complete ZIP file"):
        get_data("boxoban")
    monkeypatch.setattr(archives, "MAX_RATIO", 10)
    boxoban.archives["levels.zip"] = zipped({place: " " * 1_000_000})
    with pytest.raises(DataError, match="bytes are unpacked"):
        get_data("boxoban")
    assert read_record(data_folder() / "boxoban") is None


def test_the_commands_list_get_show_and_compare(hub: Hub, tmp_path: Path) -> None:
    kept = {key: os.environ[key] for key in ("PATH", "PETTINGLLMS_DATASETS") if key in os.environ}
    source = str(Path(fetch.__file__).parents[2])
    environment = {**kept, "PYTHONPATH": source, "HF_ENDPOINT": hub.url, "HOME": str(tmp_path)}
    environment |= {"NO_PROXY": "*", "COLUMNS": "160", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment["TQDM_POSITION"] = "-1"  # show the bar without a terminal

    def data(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pettingllms", "data", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    refused = data("show", "gsm8k")
    assert refused.returncode == 2
    assert "published at: openai/gsm8k" in refused.stdout
    assert "run `pettingllms data get gsm8k`" in refused.stderr
    got = data("get", "gsm8k")
    assert got.returncode == 0, got.stderr
    assert "license: mit" in got.stdout
    assert "100%" in got.stderr, "the client's progress bar"
    listed = data("list").stdout
    assert "train, test: 0.0 MB" in listed
    assert all(name in listed for name in published())
    shown = data("show", "gsm8k", "--rows", "1").stdout
    assert "What is 0+0?" in shown
    assert "40 rows in train" in shown
    compared = data("overlap", "gsm8k", "gsm8k:train?rows=0..5", "gsm8k")
    assert compared.returncode == 1
    assert "5 (100.0%)" in compared.stdout
