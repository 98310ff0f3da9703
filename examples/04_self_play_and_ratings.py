"""Self-play from random weights, then a round-robin tournament.

One policy plays both roles of Kuhn poker, and in a quarter of the games an earlier snapshot of
itself. A tournament then rates it against its untrained self, a random player and the Nash
equilibrium. Ratings count won games, and equilibrium play maximizes chips: it folds often and loses
little, so it need not rank first. Needs the engines (scripts/install_cpu.sh); under two minutes on
two cores.
"""

import tempfile
from pathlib import Path

import pettingllms as pl

GAME = {"id": "kuhn_poker-v1", "terse": True}
TEXTS = ["check bet fold call", "J Q K player_1 player_2", "0123456789 :,./-|"]


def self_play(folder: Path, num_steps: int = 24) -> pl.Run:
    size = {"hidden_size": 64, "vocab_size": 280, "symbols": True, "head_dim": 16}
    return pl.train(
        model=pl.make_tiny(folder / "model", texts=TEXTS, **size),
        lr=2e-3,
        env={**GAME, "num_tasks": 100_000},
        algo="rae",  # a running baseline per role, since the roles' expected rewards differ
        league={"snapshot_every": 12, "share": 0.25},
        rollout={"num_tasks": 256, "num_samples": 1, "max_reply_tokens": 1},
        inference={"engine": "torch", "max_num_seqs": 512, "max_model_len": 64},
        loss={"entropy_coef": 0.1},
        cluster={"device": "cpu"},
        train={"num_steps": num_steps, "save_every": num_steps},
        out=folder / "run",
    )


def rate(run: pl.Run, num_rounds: int = 40) -> list[dict]:
    """Rows of the table, the best player first."""
    players = ["nash", "random", f"trained={run.path}", f"untrained={run.path}@0"]
    return list(pl.tournament(GAME, players, num_rounds=num_rounds).rows())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = rate(self_play(Path(folder)))
    for row in rows:
        rating = f"{row['rating']:5.1f} ± {row['margin']:.1f}"
        print(f"{row['player']:10} {rating}   {row['wins']} won, {row['losses']} lost")
