"""The configs of the golden runs."""


def config(env: str, algo: str, *sections: str, num_tasks: int = 3, num_seqs: int = 64) -> str:
    """The TOML of a run of two steps; `MODEL` stands for the folder of the model."""
    head = f"""
seed = 11
{env}
[algo]
type = "{algo}"
[rollout]
num_tasks = {num_tasks}
num_samples = 3
max_reply_tokens = 6
[inference]
engine = "torch"
max_model_len = 96
max_num_seqs = {num_seqs}
[cluster]
device = "cpu"
[learner]
num_minibatches = 2
[train]
num_steps = 2
save_every = 2
"""
    return head + "".join(sections)


BOARD = """
[env]
id = "tic_tac_toe-v1"
terse = true
"""
GRID = """
[env]
id = "plan_path-v1"
terse = true
width = 3
height = 3
min_distance = 2
max_moves = 4
max_rounds = 1
"""
FULL = """
[policies.p]
kind = "full"
model = "MODEL"
lr = 1e-3
"""
LORA = """
[policies.p]
kind = "lora"
model = "MODEL"
rank = 4
lr = 1e-3
"""
TWO_FULL = """
[policies.a]
kind = "full"
model = "MODEL"
lr = 1e-3
[policies.b]
kind = "full"
model = "MODEL"
lr = 2e-3
[roles]
player_x = "a"
player_o = "b"
"""
TWO_LORA = TWO_FULL.replace('"full"', '"lora"')
LEAGUE = """
[league]
snapshot_every = 1
max_snapshots = 2
num_opponents = 2
anchors = ["minimax"]
"""
CO_PLAYERS = """
[policies.weak]
kind = "scripted"
player = "random"
[roles]
player_x = "p"
player_o = "weak"
[co_players]
window = 1
[[co_players.phases]]
members = { weak = 1.0 }
until_step = 1
[[co_players.phases]]
members = { "script:minimax" = 1.0, "p@0" = 1.0 }
"""
SFT = """
[sft]
player = "noisy"
num_episodes = 60
num_steps = 30
num_turns = 64
lr = 1e-2
"""
BOARD_TEXTS = ["X\n123\n456\n789", "O\nX23\n4O6\n78X"]
GRID_TEXTS = ["S..\n.#.\n..G", "planner\nUDLR", "checker\nRRDD", "accept"]
# Supervised runs whose models all other scenarios start from, so that replies differ in reward.
# Name: the texts of the tokenizer, and the config.
WARM_STARTS = {
    "sft on boards": (BOARD_TEXTS, config(BOARD, "grpo", FULL, SFT)),
    "sft on grids": (GRID_TEXTS, config(GRID, "grpo", FULL, SFT)),
}
BOARDS, GRIDS = WARM_STARTS
# Name: the warm start, and the config. Where two engines sample, each request is a batch. Otherwise
# their relative speed decides which requests share a batch, and results are rounded differently.
SCENARIOS = {
    "L1, linear rollouts, grpo": (BOARDS, config(BOARD, "grpo", FULL)),
    "L1, tree rollouts, at_grpo": (GRIDS, config(GRID, "at_grpo", FULL)),
    "L2, two adapters, dr_mas": (BOARDS, config(BOARD, "dr_mas", TWO_LORA)),
    "L3, two models, at_grpo": (
        BOARDS,
        config(BOARD, "at_grpo", TWO_FULL, num_tasks=2, num_seqs=1),
    ),
    "value head, ppo": (BOARDS, config(BOARD, "ppo", FULL)),
    "team critic, mappo": (GRIDS, config(GRID, "mappo", LORA)),
    "league, rae": (BOARDS, config(BOARD, "rae", LORA, LEAGUE, num_tasks=6)),
    "co-players, grpo": (BOARDS, config(BOARD, "grpo", LORA, CO_PLAYERS)),
}
