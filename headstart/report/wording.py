"""Numbers and foreign text for a reader: one decimal, a real minus, no character that hides or reorders."""

import re

from headstart.errors import visible
from headstart.study.record import Interval

NOTHING = "–"
_HARMLESS = re.compile("([\u200c\u200d\u00ad])")  # joiners of scripts and emoji, the soft hyphen
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def shown(text: str, longest: int = 1_000) -> str:
    """Foreign text made harmless to look at: control and direction characters as escapes, and cut at a length."""
    text = text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
    parts = _HARMLESS.split(text.replace("\t", " "))
    return "".join(part if _HARMLESS.fullmatch(part) else visible(part) for part in parts)


def one_line(text: str, longest: int) -> str:
    """Foreign text for a chart's label: harmless, cut, without line breaks."""
    text = shown(" ".join(text.split()), longest)
    # Escapes are longer than what they show.
    return text if len(text) <= longest else text[: longest - 1] + "…"


def percent(share: float | None) -> str:
    """0.8123 as "81.2 %"."""
    return NOTHING if share is None else f"{_fixed(100 * share)}\u00a0%"


def whole_percent(share: float | None) -> str:
    """0.667 as "67 %", where a decimal would promise too much."""
    return NOTHING if share is None else f"{100 * share:.0f}\u00a0%"


def interval(low: float, high: float) -> str:
    """The bounds of shares, in percent: "(78.4 to 84.0)"."""
    return f"({_fixed(100 * low)} to {_fixed(100 * high)})"


def estimate(share: Interval | None) -> str:
    """A share with its interval: "81.2 % (78.4 to 84.0)"."""
    return NOTHING if share is None else f"{percent(share.value)} {interval(share.low, share.high)}"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign: "+12.0".

    A bound just below zero is "−0.0", as in the verdict: an interval that ends there does not hold zero.
    """
    return f"{100 * difference + 0.0:+.1f}".replace("-", "\u2212")


def points_interval(low: float, high: float) -> str:
    """The bounds of a difference, with their signs: "(+8.0 to +16.0)"."""
    return f"({points(low)} to {points(high)})"


def _fixed(number: float) -> str:
    return f"{round(number, 1) + 0.0:.1f}".replace("-", "\u2212")


def count(number: float | None) -> str:
    """Whole numbers with commas: "1,600"."""
    return NOTHING if number is None else f"{number:,.0f}"


def probability(p: float) -> str:
    """A p-value: three decimals, and never a false zero."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def short_number(number: float | None) -> str:
    """A learning rate or an epoch: three significant figures."""
    return NOTHING if number is None else f"{number:.3g}".replace("-", "\u2212")


def decimals(number: float | None) -> str:
    """A loss or bits per byte: three decimals."""
    return NOTHING if number is None else f"{number:.3f}"


def operations(number: float | None) -> str:
    """Large counts as a power of ten: "2.1 × 10¹²"."""
    if number is None:
        return NOTHING
    if number < 10_000:
        return count(number)
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    return f"{mantissa}\u00a0×\u00a010{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def duration(seconds: float | None) -> str:
    """Measured time: "3.1 s", "4 min 11 s", "2 h 05 min"."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f}\u00a0s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60:02d}\u00a0s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}\u00a0h {minutes % 60:02d}\u00a0min"


def size(text_bytes: float | None) -> str:
    """Bytes in the unit that fits: "1.5 MB"."""
    if text_bytes is None:
        return NOTHING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if text_bytes >= scale:
            return f"{text_bytes / scale:.1f}\u00a0{unit}"
    return f"{text_bytes:.0f}\u00a0bytes"


def sentence(text: str) -> str:
    """Foreign words as a sentence: a capital at the beginning, a full stop at the end."""
    text = shown(text.strip(), 700).replace(" %", "\u00a0%")  # a percent sign never begins a line
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def sentence_case(text: str) -> str:
    """With a capital at the beginning, as a heading has it."""
    return text[:1].upper() + text[1:]


def plural(number: float, noun: str) -> str:
    """A count with its noun: "1 seed", "3 seeds"."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
