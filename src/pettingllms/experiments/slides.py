"""An experiment as PDF slides: question, setup and results.

The code of the figure draws them from the same results, so they always match the table.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.figure import Figure as Canvas

from pettingllms.experiments.figure import (
    COLORS,
    FAINT,
    INK,
    LINE,
    ROW,
    STYLE,
    WIDTH,
    Page,
    Picture,
    bars_note,
    dark,
    panel_letters,
    wrapped,
)

HEIGHT = 4.5
PANELS = 2
"""Evaluations per slide."""
LETTERS = 88
"""Characters per line of a slide."""
SPACE = 0.225
"""Line height in inches."""


@dataclass(frozen=True, slots=True)
class Deck:
    """The texts of the slides."""

    question: str
    about: dict[str, str] = field(default_factory=dict)
    """Description of each arm."""
    costs: Sequence[str] = ()
    """Provenance: seeds, machine, versions and command."""
    limits: Sequence[str] = ()
    """Limitations."""


def draw_slides(deck: Deck, picture: Picture, path: Path) -> None:
    """Write one page per slide."""
    colors = {arm: COLORS[at % len(COLORS)] for at, arm in enumerate(picture.arms)}
    # No timestamp, so that the same numbers give the same file.
    with mpl.rc_context(STYLE), PdfPages(path, metadata={"CreationDate": None}) as pages:
        for number, slide in enumerate(_slides(deck, picture, colors), 1):
            slide.canvas.text(0.98, 0.03, str(number), ha="right", fontsize=8, color=FAINT)
            pages.savefig(slide.canvas, facecolor="white")


def _slides(deck: Deck, picture: Picture, colors: dict[str, str]) -> Iterator[Page]:
    yield _first(deck, picture, colors)
    if deck.about:
        yield _arms(deck, colors)
    if picture.lines is not None:
        slide = _slide("Learning curves", colors)
        slide.draw_lines(picture.lines, 0.6)
        yield slide
    for start in range(0, len(picture.bars), PANELS):
        yield _ends(replace(picture, bars=picture.bars[start : start + PANELS]), colors)
    for title, points in (("Limitations", deck.limits), ("Reproduction", deck.costs)):
        if points:
            yield _points(title, points, colors)


def _slide(title: str, colors: dict[str, str]) -> Page:
    canvas = Canvas(figsize=(WIDTH, HEIGHT))
    FigureCanvasPdf(canvas)
    page = Page(canvas, colors)
    page.write([title], 0.2, 17, INK, "bold")
    return page


def _first(deck: Deck, picture: Picture, colors: dict[str, str]) -> Page:
    slide = _slide("", colors)
    title, question = wrapped(picture.title, 40), textwrap.wrap(deck.question, 62)
    slide.write(title, 0.9, 24, INK, "bold")
    slide.write(question, 1.2 + 0.45 * len(title), 14, FAINT, "normal")
    return slide


def _arms(deck: Deck, colors: dict[str, str]) -> Page:
    slide, below = _slide("Arms", colors), 0.75
    for arm, about in deck.about.items():
        slide.write([arm], below, 11, dark(colors[arm]), "bold")
        lines = textwrap.wrap(about, LETTERS)
        slide.write(lines, below + SPACE, 10.5, INK, "normal")
        below += SPACE * (len(lines) + 1) + 0.12
    return slide


def _ends(picture: Picture, colors: dict[str, str]) -> Page:
    slide = _slide("Final evaluations", colors)
    slide.write(wrapped(bars_note(picture.bars), LETTERS), 0.6, 9, FAINT, "normal")
    names = [wrapped(panel.name, panel_letters(picture)) for panel in picture.bars]
    top = 1.0 + LINE * max(map(len, names))
    slide.draw_bars(picture, names, HEIGHT - top - ROW * len(picture.arms))
    return slide


def _points(title: str, points: Sequence[str], colors: dict[str, str]) -> Page:
    slide, below = _slide(title, colors), 0.8
    for point in points:
        lines = textwrap.wrap(point, LETTERS, initial_indent="– ", subsequent_indent="   ")
        slide.write(lines, below, 11, INK, "normal")
        below += SPACE * len(lines) + 0.12
    return slide
