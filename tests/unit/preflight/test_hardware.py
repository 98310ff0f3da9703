"""Named GPUs, amounts of memory, and messages about others."""

import pytest

from pettingllms.errors import ConfigError
from pettingllms.preflight.hardware import GPUS, find_hardware, parse_amount
from pettingllms.runtime.resources import GIB


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_has_nearly_the_memory_of_its_name(name: str) -> None:
    nominal = int(name.rpartition("-")[2])
    assert 0.95 * nominal < GPUS[name] * 2**20 / 1e9 < 1.08 * nominal


def test_hardware_is_named_or_given_as_an_amount() -> None:
    named = find_hardware("H100-80", num_nodes=2, host_memory="1.5TiB")
    assert (named.gpu, named.device_bytes, named.num_gpus) == ("h100-80", 81559 * 2**20, 16)
    assert named.host_bytes == 1536 * GIB
    assert find_hardware("80GiB", gpus_per_node=4).device_bytes == 80 * GIB
    assert find_hardware("80 GB").device_bytes == 80 * 10**9


@pytest.mark.parametrize("text", ["80", "GiB", "-1GiB", "80 gigs", ""])
def test_other_amounts_are_rejected_with_the_names(text: str) -> None:
    assert parse_amount(text) is None
    with pytest.raises(ConfigError, match=r"--gpu.*\n.*h100-80.*80GiB"):
        find_hardware(text)
    with pytest.raises(ConfigError, match=r"--host-memory.*\n.*1024GiB"):
        find_hardware("h100-80", host_memory=text)
