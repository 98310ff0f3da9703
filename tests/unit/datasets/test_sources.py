"""One syntax names data in all environments; a source that names nothing is told."""

import json
from pathlib import Path

import pytest

from pettingllms.datasets import load
from pettingllms.datasets.catalog import LOADERS
from pettingllms.datasets.code_formats import read_problems
from pettingllms.datasets.published import ENVIRONMENTS, SHARED, published
from pettingllms.datasets.short_answers import read_short_answers
from pettingllms.datasets.sources import SPLITS, parse_source
from pettingllms.datasets.store import Record, Stored, folder_of, sha256_of, write_record
from pettingllms.envs import make_env
from pettingllms.errors import DataError

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
CODE = SAMPLES.parent / "code"
ASKED = (
    *("gsm8k", "math", "math500", "aime24", "aime25", "olympiadbench", "dapo_math", "apps"),
    *("code_contests", "livecodebench", "humaneval", "mbpp", "anli", "hotpotqa", "spider"),
    *("svamp", "boxoban"),
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PETTINGLLMS_DATASETS", str(tmp_path / "data"))


def keep(name: str, **splits: Path) -> None:
    """What `data get` would have stored."""
    place = folder_of(parse_source(name))
    place.mkdir(parents=True)
    files, kept = {}, {}
    for split, path in splits.items():
        (place / path.name).write_bytes(path.read_bytes())
        files[path.name] = Stored(sha256_of(path), path.stat().st_size)
        kept[split] = (path.name,)
    write_record(place, Record(name, "lab/x", "0" * 40, "mit", files, kept))


def test_the_table_has_every_set_and_is_consistent() -> None:
    assert set(published()) == set(ASKED)
    for entry in published().values():
        assert entry.kind in ENVIRONMENTS
        assert bool(entry.repo) != bool(entry.archive)
        assert (entry.format in LOADERS) == (entry.kind == "problems")
        assert set(entry.rows) == set(entry.files) - {SHARED}
        for files in (entry.files, *entry.parts.values()):
            assert set(files) <= {*SPLITS, SHARED}
    only = {name for name, entry in published().items() if entry.is_test_only()}
    assert only == {"math500", "aime24", "aime25", "olympiadbench", "livecodebench", "humaneval"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gsm8k", ("published", "gsm8k", "", "")),
        ("gsm8k:test", ("published", "gsm8k", "", "test")),
        ("anli/r2", ("published", "anli", "r2", "")),
        (
            "livecodebench/v5?to=2024-08-01",
            ("published", "livecodebench", "v5", ""),
        ),
        ("hf:lab/sums", ("hub", "lab/sums", "", "")),
        ("hf:lab/sums/easy@v1.0:dev?question=q", ("hub", "lab/sums", "easy", "dev")),
        ("gsm8k:mine.jsonl", ("file", "mine.jsonl", "", "")),
        ("aime24:/x/mine.csv", ("file", "/x/mine.csv", "", "")),
        ("./math", ("file", "math", "", "")),
        ("rows.jsonl", ("file", "rows.jsonl", "", "")),
    ],
)
def test_a_source_is_parsed(text: str, expected: tuple[str, ...]) -> None:
    found = parse_source(text)
    assert (found.kind, str(Path(found.name)), found.part, found.split) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gsm9k", "did you mean 'gsm8k'"),
        ("anli/r4", "has no part 'r4'"),
        ("math/train", "write ./math/train"),
        ("aime24:train", "'aime24' has no split 'train'"),
        ("hf:lab", "expected hf:OWNER/NAME"),
        ("hf:../sums", "expected hf:OWNER/NAME"),
        ("gsm8k?rows=5..2", "expected FIRST..LAST"),
        ("gsm8k?from=august", "is not a day"),
        ("gsm8k?question", "expected KEY=VALUE"),
    ],
)
def test_a_source_that_names_nothing_is_told(text: str, what: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_source(text)
    assert what in str(caught.value)


def test_data_for_another_environment_is_refused() -> None:
    with pytest.raises(DataError, match="'apps' is data for code-v1, not for math-v1 and debate"):
        load("apps")
    with pytest.raises(ValueError, match="'gsm8k' is data for math-v1"):
        make_env("code-v1", data="gsm8k")


def test_a_test_set_needs_no_training_set_and_is_never_trained_on() -> None:
    keep("aime24", test=SAMPLES / "aime24.jsonl")
    env = make_env("math-v1", data="aime24")
    assert [len(env.tasks(split)) for split in ("train", "test")] == [0, 2]
    alone = make_env("math-v1", test_data="aime24")
    assert len(alone.tasks("test")) == 2
    assert len(alone.tasks("train")) > 100, "generated"
    keep("gsm8k", train=SAMPLES / "gsm8k.jsonl")
    both = make_env("math-v1", data="gsm8k", test_data="aime24")
    assert [len(both.tasks(split)) for split in ("train", "test")] == [3, 2]
    with pytest.raises(DataError, match="a test set without training problems; set env.data"):
        make_env("math-v1", data="aime24", test_data="gsm8k").tasks("train")


def test_a_run_on_a_test_set_alone_is_refused_with_what_to_do() -> None:
    from pettingllms.envs.check_start import check_start
    from pettingllms.errors import EnvContractError

    keep("aime24", test=SAMPLES / "aime24.jsonl")
    env = make_env("math-v1", data="aime24")
    check_start(env, forks=False, split="test")
    with pytest.raises(EnvContractError, match="set env.data to a training set and env.test_data"):
        check_start(env, forks=False)


def test_code_sql_and_search_read_names_and_test_data(tmp_path: Path) -> None:
    keep("humaneval", test=CODE / "humaneval.jsonl.gz")
    assert not make_env("code-v1", data="humaneval").tasks("train")
    assert make_env("code-v1", data="humaneval").tasks("test")
    rows = [json.dumps({"question": f"Who wrote {n}?", "answer": "Ada"}) for n in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows[:15]))
    (tmp_path / "b.jsonl").write_text("\n".join(rows[15:]))
    keep("hotpotqa", train=tmp_path / "a.jsonl", test=tmp_path / "b.jsonl")
    assert len(read_short_answers("hotpotqa?rows=..4")) == 4
    options = {"data": "hotpotqa", "test_data": "hotpotqa", "service": "http://127.0.0.1:9"}
    env = make_env("search-v1", **options)
    assert [len(env.tasks(split)) for split in ("train", "test")] == [15, 5]
    assert env.reset(env.tasks("test")[0], 0).question.text == "Who wrote 15?"
    with pytest.raises(DataError, match="15 test problems are also training problems"):
        make_env("search-v1", **{**options, "test_data": "hotpotqa:train"}).tasks("test")


def test_problems_are_selected_by_date() -> None:
    keep("livecodebench", test=CODE / "livecodebench.jsonl")
    assert len(read_problems("livecodebench", "test")) == 2
    assert len(read_problems("livecodebench?from=2024-02-01&to=2024-02-03", "test")) == 1
    assert len(read_problems("livecodebench?to=2024-02-02", "test")) == 1
    with pytest.raises(DataError, match="has no problem"):
        read_problems("livecodebench?from=2099-01-01", "test")
    keep("gsm8k", train=SAMPLES / "gsm8k.jsonl")
    with pytest.raises(DataError, match="'gsm8k' has no dates"):
        load("gsm8k?from=2024-01-01")


def test_a_damaged_record_and_a_lost_file_are_told() -> None:
    keep("gsm8k", train=SAMPLES / "gsm8k.jsonl")
    place = folder_of(parse_source("gsm8k"))
    (place / "gsm8k.jsonl").unlink()
    with pytest.raises(DataError, match="is gone; run `pettingllms data get gsm8k`"):
        load("gsm8k")
    for text in ("{", '{"files": {"../x": {}}, "splits": {}}', "[]"):
        (place / "source.json").write_text(text)
        with pytest.raises(DataError, match="is damaged"):
            load("gsm8k")


def test_an_unknown_name_lists_each_known_name_once() -> None:
    with pytest.raises(DataError) as caught:
        parse_source("nothing")
    assert str(caught.value).count(" anli,") == 1, caught.value
