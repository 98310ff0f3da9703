"""Which tasks a team is judged by."""

import pytest

from pettingllms.config import EvalConfig
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError
from pettingllms.training.evaluate import eval_tasks


def test_tasks_to_choose_by_and_tasks_to_report_need_not_meet():
    env = make_env("plan_path-v1", num_tasks=30)
    chosen_by = eval_tasks(env, EvalConfig(num_tasks=10))
    reported = eval_tasks(env, EvalConfig(num_tasks=10, first_task=10))
    assert [task.id for task in reported] == [f"test-{index}" for index in range(10, 20)]
    assert not {task.id for task in chosen_by} & {task.id for task in reported}


def test_no_task_at_all_is_refused():
    env = make_env("plan_path-v1", num_tasks=30)
    with pytest.raises(ConfigError, match="30 is past the end"):
        eval_tasks(env, EvalConfig(first_task=30))
