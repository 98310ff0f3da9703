"""Stages of an experiment beside its arms: verifiers before them, and exports of their policies."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from pettingllms.config import Section
from pettingllms.runs.folder import slug


class VerifierStage(Section):
    """A verifier that is trained on answers of a model, before the arms."""

    name: str
    """`{name}` in a config is replaced with the verifier's folder, as for
    judge.judges.NAME.folder."""
    config: str
    """A config in the experiment's folder with a [verifier] section. Its policies give the
    answers."""
    set: list[str] = Field(default_factory=list)
    """Overrides, as on the command line."""


class Export(Section):
    """A trained policy of an arm, as a model for other arms. List those arms after it."""

    name: str
    """`{name}` in a config is replaced with the folder of the model."""
    arm: str
    """The trained arm."""
    policy: str
    """The policy."""


def stage_problems(
    verifiers: Sequence[VerifierStage], exports: Sequence[Export], taken: Sequence[str]
) -> Iterator[str]:
    """Names that are also those of another model."""
    names = [*taken, *(one.name for one in verifiers), *(one.name for one in exports)]
    for name in sorted(_repeated(names)):
        yield f"verifiers, exports: '{name}' is also the name of another model; use unique names"


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(map(slug, names)).items() if count > 1}
