"""How each arm looks in every chart: a colour, a marker and a dash of its own, and its sample for the legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from headstart.report.charts import BLUE, GREEN, GREY, INK, ORANGE, PINK
from headstart.report.inline_svg import AMBER, SKY, YELLOW, variable
from headstart.report.study_file import Arm

# What an arm takes where it is free: the same kind looks the same in every study.
_COLOUR_OF_KIND = {
    "majority": GREY, "tfidf": INK, "scratch": ORANGE, "finetuned": BLUE, "frozen": SKY, "shuffled": PINK,
    "scratch-long": AMBER,
}  # fmt: skip
_COLOURS = [BLUE, GREEN, PINK, SKY, YELLOW, AMBER, ORANGE, INK, GREY]
_MARKER_OF_KIND = {"majority": "", "tfidf": "D", "scratch": "o", "finetuned": "s"}
_MARKERS = ["^", "v", "P", "X", "<", ">", "*", "p", "d", "h"]
_DASHES = {"majority": (1.0, 2.2), "tfidf": (4.5, 2.0), "frozen": (6.0, 1.6), "shuffled": (3.0, 1.4)}


@dataclass(frozen=True)
class Mark:
    colour: str
    marker: str
    dashes: tuple[float, float] | None

    @property
    def linestyle(self) -> str | tuple[float, tuple[float, float]]:
        """The dash as matplotlib wants it."""
        return (0, self.dashes) if self.dashes else "solid"

    def sample(self) -> Markup:
        """A piece of the arm's line with its marker, for a legend in the page."""
        colour = variable(self.colour)
        dashes = f' stroke-dasharray="{" ".join(f"{1.7 * n:g}" for n in self.dashes)}"' if self.dashes else ""
        line = f'<path d="M1 7H31" stroke="{colour}" stroke-width="2.2"{dashes}/>'
        shape = f'<path d="{_outline(self.marker)}" fill="{colour}"/>' if self.marker else ""
        inside = Markup(line + shape)
        return Markup('<svg class="sample" viewBox="0 0 32 14" aria-hidden="true">{}</svg>').format(inside)


def arm_marks(arms: Sequence[Arm]) -> dict[str, Mark]:
    """A mark for each arm; colours repeat only when there are more arms than colours, markers later still."""
    marks: dict[str, Mark] = {}
    colours, markers = list(_COLOURS), list(_MARKERS)
    for arm in arms:  # wishes first, so that no arm takes the colour of one that comes later
        colour = _COLOUR_OF_KIND.get(arm.kind)
        if colour in colours:
            marker = _MARKER_OF_KIND.get(arm.kind)
            marker = markers.pop(0) if marker is None else marker
            marks[arm.name] = Mark(colour, marker, _DASHES.get(arm.kind))
            colours.remove(colour)
    for arm in arms:
        if arm.name not in marks:
            colours, markers = colours or list(_COLOURS), markers or list(_MARKERS)
            marks[arm.name] = Mark(colours.pop(0), markers.pop(0), _DASHES.get(arm.kind))
    return marks


def _outline(marker: str) -> str:
    """The marker as an SVG path around the middle of a sample."""
    style = MarkerStyle(marker)
    place = Affine2D(style.get_transform().get_matrix()).scale(8.5, -8.5).translate(16, 7)
    path = style.get_path().transformed(place)
    words = []
    for vertices, code in path.iter_segments(curves=True, simplify=False):
        letter = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE4: "C", Path.CURVE3: "Q"}.get(code, "Z")
        numbers = "" if letter == "Z" else " ".join(f"{number:.1f}" for number in vertices)
        words.append(letter + numbers)
    return "".join(words)
