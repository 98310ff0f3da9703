import pytest

pytest.importorskip("torch")

from pettingllms.cluster.placement import cores_of


@pytest.mark.parametrize(
    ("count", "cores", "expected"),
    [
        (1, 2, ["0-1"]),
        (2, 2, ["0", "1"]),
        (3, 2, ["0", "1", "0"]),
        (2, 8, ["0-3", "4-7"]),
        (3, 8, ["0-1", "2-3", "4-5"]),
    ],
)
def test_engines_share_the_cores(count: int, cores: int, expected: list[str]) -> None:
    assert [cores_of(number, count, cores) for number in range(count)] == expected
