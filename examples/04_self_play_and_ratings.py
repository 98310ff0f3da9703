"""Self-play from random weights, then a tournament in which everybody meets everybody.

One policy sits in both players of Kuhn poker and also meets its own past. Afterwards it is rated
beside its untrained self, a random player and perfect play. A rating counts games, and perfect play
counts chips: it folds often and loses little each time, so it need not stand first. Needs the
engines (scripts/install_cpu.sh); under two minutes on two cores.
"""

import tempfile
from pathlib import Path

import pettingllms as pl
from pettingllms.evaluation.tournament import Tournament, parse_entries, run_tournament
from pettingllms.models import make_tiny
from pettingllms.runs.callbacks import Callback
from pettingllms.training.train import train

GAME = {"id": "kuhn_poker-v1", "terse": True}
WORDS = ["check bet fold call", "J Q K player_1 player_2", "0123456789 :,./-|"]


class Lines(Callback):
    """Prints what each player was paid: at first moves that are none cost chips."""

    def on_step_end(self, step, metrics):
        paid = {role: row["reward"] for role, row in metrics["roles"].items()}
        print(f"step {step:2}:", ", ".join(f"{role} {won:+.2f}" for role, won in paid.items()))


def play_itself(folder: Path, num_steps: int = 24) -> Path:
    model = make_tiny(
        folder / "model", texts=WORDS, hidden_size=64, vocab_size=280, symbols=True, head_dim=16
    )
    config = pl.parse_config(
        {
            "env": {**GAME, "num_tasks": 100_000},
            "algo": {"type": "rae"},  # a running baseline for each player: players are not equal
            "policies": {"shared": {"kind": "full", "model": str(model), "lr": 2e-3}},
            "league": {"snapshot_every": 12, "share": 0.25},  # its past, a quarter of the games
            "rollout": {"num_tasks": 256, "num_samples": 1, "max_reply_tokens": 1},
            "inference": {"engine": "torch", "max_num_seqs": 512, "max_model_len": 64},
            "loss": {"entropy_coef": 0.1},
            "cluster": {"device": "cpu"},
            "train": {"num_steps": num_steps, "save_every": num_steps},
        }
    )
    found = pl.RunFolder(folder / "run")
    found.create(config)
    train(config, found, Lines())
    return found.path


def rate(run: Path, num_rounds: int = 40) -> list[dict]:
    """Rows of the table, the best player first."""
    env = pl.make_env(**GAME)
    words = ["nash", "random", f"trained={run}", f"untrained={run}@0"]
    found = run_tournament(Tournament(env, parse_entries(env, words), num_rounds), notify=print)
    return list(found.rows())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = rate(play_itself(Path(folder)))
    for row in rows:
        rating = f"{row['rating']:5.1f} ± {row['margin']:.1f}"
        print(f"{row['player']:10} {rating}   {row['wins']} won, {row['losses']} lost")
