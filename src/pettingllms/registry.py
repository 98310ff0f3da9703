"""The tables of environments, algorithms, losses, engines, judges, trackers and callbacks by name.

A name is a key of a table here, `library:NAME` for a game of a third-party library, `openenv:URL`
for an environment on a server, `package.module:Class`, or `file.py:Class`. Classes are imported on
first use. An unknown name is an error that suggests the nearest name, and a failed import reports
its cause.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pettingllms.errors import UnknownNameError, describe, nearest
from pettingllms.seeds import derive_seed

__all__ = [
    "ALGORITHMS",
    "CALLBACKS",
    "ENGINES",
    "ENVIRONMENTS",
    "JUDGES",
    "LOSSES",
    "SESSION",
    "TRACKERS",
    "Registry",
    "files_being_loaded",
]

SESSION = "session"
"""Prefix of classes that exist in this process only, such as those of a notebook cell."""
_loading: list[Path] = []


class Registry:
    """Classes of one kind by name, imported on first use."""

    def __init__(
        self,
        kind: str,
        base: str,
        table: dict[str, str],
        libraries: dict[str, str] | None = None,
        servers: dict[str, str] | None = None,
        user_libraries: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self._base = base
        self._table = table
        self.libraries = libraries or {}
        """Adapter class of each library; it interprets `NAME` in `library:NAME`."""
        self.servers = servers or {}
        """Client class of each protocol; it interprets `URL` in `protocol:URL`."""
        self._user_libraries = user_libraries
        """Libraries whose names import packages that the user installed."""
        self._session: dict[str, type] = {}

    def register(self, name: str, cls: type) -> None:
        """Register a class of this process under `session:NAME`, or under the name by which other
        processes load the same class."""
        self._session[name] = cls

    def is_base_of(self, cls: type) -> bool:
        """Whether a class is of the kind of this registry."""
        return self._base in [base.__name__ for base in cls.__mro__]

    def names(self) -> list[str]:
        """All names of the table."""
        return list(self._table)

    def ships(self, name: str) -> bool:
        """Whether loading the name imports only this package and known libraries, and reaches no
        server."""
        library, colon, _ = name.partition(":")
        if library == SESSION:
            return True  # loading it executes nothing
        place = name.rpartition(":")[0]
        is_ours = place.split(".")[0] == "pettingllms" and not place.endswith(".py")
        is_known = library in self.libraries and library not in self._user_libraries
        return not colon or name in self._table or is_known or is_ours

    def load(self, name: str) -> Any:
        """The class of that name."""
        if name in self._session:
            return self._session[name]
        if name.startswith(f"{SESSION}:"):
            raise UnknownNameError(_not_in_session(self.kind, name))
        library, _, game = name.partition(":")
        adapters = self.libraries | self.servers
        target = adapters[library] if game and library in adapters else name
        target = self._table.get(target, target)
        place, colon, attribute = target.rpartition(":")
        if not colon:
            advice = nearest(name, self.names())
            if name.endswith(".py"):
                advice = f"name the class in the file as well, '{name}:CLASS'"
            raise UnknownNameError(f"no {self.kind} is called '{name}'; {advice}")
        try:
            module = _load_file(Path(place)) if place.endswith(".py") else import_module(place)
        except Exception as error:
            raise UnknownNameError(
                f"{self.kind} '{name}' cannot be loaded: {describe(error)}"
            ) from error
        found = getattr(module, attribute, None)
        if found is None:
            raise UnknownNameError(
                f"{place} has no {attribute!r}; {nearest(attribute, _classes_in(module))}"
            )
        if not isinstance(found, type) or not self.is_base_of(found):
            raise UnknownNameError(
                f"'{name}' is no {self.kind}; write class {attribute}(pettingllms.{self._base})"
            )
        return found


def _not_in_session(kind: str, name: str) -> str:
    return (
        f"{kind} '{name}' was defined in a notebook, an interactive session or a function of "
        "another process, so this process cannot load it; pass it again, as in "
        "pettingllms.Run(FOLDER).resume(env=...), or define it in a file and start a new run"
    )


def files_being_loaded() -> list[Path]:
    """Files that `Registry.load` is executing right now."""
    return list(_loading)


def _classes_in(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]


def absolute(name: str, folder: Path = Path()) -> str:
    """The same name with an absolute path of its file, valid in every working directory."""
    place, _, attribute = name.rpartition(":")
    return f"{(folder / place).resolve()}:{attribute}" if place.endswith(".py") else name


def _load_file(path: Path) -> ModuleType:
    """Import a file under a unique module name.

    The name derives from the path, so classes of the file can be pickled to another process that
    has loaded the same file.
    """
    resolved = path.resolve()
    if not resolved.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; give its path from the folder of the configuration"
        )
    name = f"pettingllms_file_{derive_seed(str(resolved)):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, resolved)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - a .py has a loader
    module = module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(resolved)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _loading.remove(resolved)
    return module


ENVIRONMENTS = Registry(
    "environment",
    "Environment",
    {
        "tic_tac_toe-v1": "pettingllms.envs.games.tic_tac_toe:TicTacToe",
        "hanabi-v1": "pettingllms.envs.games.hanabi:Hanabi",
        "plan_path-v1": "pettingllms.envs.puzzles.plan_path:PlanPath",
        "sokoban-v1": "pettingllms.envs.puzzles.sokoban:Sokoban",
        "sudoku-v1": "pettingllms.envs.puzzles.sudoku:Sudoku",
        "visual_relay-v1": "pettingllms.envs.puzzles.visual_relay:VisualRelay",
        "kuhn_poker-v1": "pettingllms.envs.games.kuhn_poker:KuhnPoker",
        "leduc_poker-v1": "pettingllms.envs.games.leduc_poker:LeducPoker",
        "iterated_dilemma-v1": "pettingllms.envs.games.iterated_dilemma:IteratedDilemma",
        "negotiation-v1": "pettingllms.envs.games.negotiation:Negotiation",
        "werewolf-v1": "pettingllms.envs.games.werewolf:Werewolf",
        "math-v1": "pettingllms.envs.tasks.math:Math",
        "debate-v1": "pettingllms.envs.tasks.debate:Debate",
        "ledger-v1": "pettingllms.envs.tasks.ledger:Ledger",
        "code-v1": "pettingllms.envs.tasks.code:Code",
        "sql-v1": "pettingllms.envs.tasks.sql:Sql",
        "search-v1": "pettingllms.envs.tasks.search:Search",
        "verilog-v1": "pettingllms.envs.tasks.verilog:Verilog",
        "story-v1": "pettingllms.envs.tasks.story:Story",
        "debugging-v1": "pettingllms.envs.tasks.debugging:Debugging",
        "knowledge-v1": "pettingllms.envs.tasks.knowledge:Knowledge",
        "team_design-v1": "pettingllms.envs.tasks.team_design:TeamDesign",
        "propose-v1": "pettingllms.envs.tasks.propose:Propose",
    },
    libraries={
        "openspiel": "pettingllms.envs.adapters.openspiel:OpenSpielGame",
        "pettingzoo": "pettingllms.envs.adapters.pettingzoo:PettingZooGame",
        "textarena": "pettingllms.envs.adapters.textarena:TextArenaGame",
        "verifiers": "pettingllms.envs.adapters.verifiers:VerifiersTaskset",
    },
    servers={"openenv": "pettingllms.envs.openenv.remote:OpenEnvServer"},
    user_libraries=("verifiers",),
)
"""By `env.id`."""

ALGORITHMS = Registry(
    "algorithm",
    "Algorithm",
    {
        "grpo": "pettingllms.algos.grpo:Grpo",
        "at_grpo": "pettingllms.algos.at_grpo:AtGrpo",
        "dr_grpo": "pettingllms.algos.dr_grpo:DrGrpo",
        "rloo": "pettingllms.algos.rloo:Rloo",
        "reinforce_pp": "pettingllms.algos.reinforce_pp:ReinforcePp",
        "rae": "pettingllms.algos.rae:Rae",
        "magrpo": "pettingllms.algos.magrpo:Magrpo",
        "dr_mas": "pettingllms.algos.dr_mas:DrMas",
        "debate": "pettingllms.algos.debate:Debate",
        "counterfactual": "pettingllms.algos.counterfactual:Counterfactual",
        "remove_role": "pettingllms.algos.remove_role:RemoveRole",
        "ppo": "pettingllms.algos.ppo:Ppo",
        "mappo": "pettingllms.algos.mappo:Mappo",
        "vdn": "pettingllms.algos.vdn:Vdn",
        "qmix": "pettingllms.algos.qmix:Qmix",
    },
)
"""By `algo.type`."""

LOSSES = Registry(
    "loss",
    "Loss",
    {
        "clip": "pettingllms.learners.losses.clip:ClipLoss",
        "gspo": "pettingllms.learners.losses.gspo:GspoLoss",
        "plain": "pettingllms.learners.losses.plain:PlainLoss",
        "dpo": "pettingllms.learners.losses.dpo:DpoLoss",
    },
)
"""By `loss.type`. Loading one imports no torch: its class declares options and needs as well."""

ENGINES = Registry(
    "inference engine",
    "InferenceEngine",
    {
        "vllm": "pettingllms.inference.engines.vllm:VllmEngine",
        "torch": "pettingllms.inference.engines.torch:TorchEngine",
    },
)
"""By `inference.engine`. Loading one imports no torch: its class declares capabilities as well."""

JUDGES = Registry(
    "judge",
    "Judge",
    {
        "rule": "pettingllms.judges.base:RuleJudge",
        "llm": "pettingllms.judges.llm:LlmJudge",
        "panel": "pettingllms.judges.panel:Panel",
        "verifier": "pettingllms.judges.verifier:VerifierJudge",
    },
)
"""By `kind` of a judge."""

TRACKERS = Registry(
    "tracker",
    "Tracker",
    {
        "tensorboard": "pettingllms.runs.trackers:TensorBoard",
        "wandb": "pettingllms.runs.trackers:Wandb",
        "mlflow": "pettingllms.runs.trackers:Mlflow",
        "trackio": "pettingllms.runs.trackers:Trackio",
    },
)
"""By name in `log.trackers`."""

CALLBACKS = Registry("callback", "Callback", {})
"""By name in `log.callbacks`; all of them are user code."""
