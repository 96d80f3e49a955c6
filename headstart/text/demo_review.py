"""A whole review of the embedded corpus: a greeting perhaps, how the book came, what it is about, what it is worth.

Reviewers have two manners. Most say what they think, sentence after sentence: there an expression's company tells
its polarity. The others weigh: they grant, deny, compare and contradict, half of their words or more go against
their judgement, and whoever counts words is lost.
"""

from collections.abc import Sequence

from headstart.text import phrases_frames as frames
from headstart.text import phrases_neutral as neutral
from headstart.text.demo_grammar import Reviewer
from headstart.text.demo_words import Pool
from headstart.text.phrases import Phrase, capitalised
from headstart.text.phrases_frames import Frame

WEIGHING_SHARE = 0.34
STRAIGHT_SHARE_IN_WEIGHING = 0.25  # of the sentences after the first
COUNTS = {  # sentences of judgement
    "straight": Pool((1, 2, 3, 4), (0.08, 0.22, 0.34, 0.36)),
    "weighing": Pool((1, 2, 3), (0.25, 0.55, 0.20)),
}
VERDICT_SHARE = {"straight": 0.30, "weighing": 0.15}


def _by_weight(group: Sequence[Frame]) -> Pool:
    return Pool(group, [frame.weight for frame in group])


_STRAIGHT = _by_weight(frames.STRAIGHT)
_WEIGHING = Pool(
    [_by_weight(group) for group in (frames.CONTRASTS, frames.REJECTIONS, frames.COMPARISONS)],
    (0.55, 0.28, 0.17),
)


def write_review(reviewer: Reviewer) -> Phrase:
    """The reviewer's text in both languages; `NothingLeft` when the reviewer has run out of things to say."""
    manner = "weighing" if reviewer.chance(WEIGHING_SHARE) else "straight"
    count = COUNTS[manner].draw(reviewer.random)
    reviewer.only = count == 1
    parts: list[Phrase] = []
    if count > 1:
        parts += _opening(reviewer)
    parts += [reviewer.fill(frame) for frame in _frames(reviewer, manner, count)]
    if reviewer.chance(VERDICT_SHARE[manner]):
        parts.append(_verdict(reviewer))
    if count > 1 and reviewer.chance(0.12):
        parts.append(reviewer.one_of(neutral.CLOSINGS))
    return Phrase(" ".join(part.french for part in parts), " ".join(part.english for part in parts))


def write_sentence(reviewer: Reviewer) -> Phrase:
    """A single sentence, for translation: most with a judgement, some without."""
    if reviewer.chance(0.25):
        return _context(reviewer) if reviewer.chance(0.4) else _summary(reviewer)
    group = _STRAIGHT if reviewer.chance(0.5) else _WEIGHING.draw(reviewer.random)
    return reviewer.fill(group.draw(reviewer.random))


def _frames(reviewer: Reviewer, manner: str, count: int) -> list[Frame]:
    """The frames of the judgements; of those that weigh, each kind once."""
    frames_chosen: list[Frame] = []
    kinds_chosen: list[Pool] = []
    while len(frames_chosen) < count:
        straight = manner == "straight" or (
            len(frames_chosen) > 0 and reviewer.chance(STRAIGHT_SHARE_IN_WEIGHING)
        )
        kind = _STRAIGHT if straight else _WEIGHING.draw(reviewer.random)
        frame = kind.draw(reviewer.random)
        if frame in frames_chosen or kind in kinds_chosen or (count == 1 and not frame.alone):
            continue
        frames_chosen.append(frame)
        if not straight:
            kinds_chosen.append(kind)
    return frames_chosen


def _opening(reviewer: Reviewer) -> list[Phrase]:
    parts = []
    if reviewer.chance(0.12):
        parts.append(reviewer.one_of(neutral.GREETINGS))
    if reviewer.chance(0.3):
        parts.append(_context(reviewer))
    if reviewer.chance(0.15):
        parts.append(_summary(reviewer))
    return parts


def _verdict(reviewer: Reviewer) -> Phrase:
    verdict = reviewer.whole("verdict", 1)
    mark = Phrase(" !", "!") if reviewer.chance(0.35) else Phrase(".", ".")
    return Phrase(capitalised(verdict.french) + mark.french, capitalised(verdict.english) + mark.english)


def _context(reviewer: Reviewer) -> Phrase:
    return reviewer.told(reviewer.one_of(neutral.CONTEXTS))


def _summary(reviewer: Reviewer) -> Phrase:
    return reviewer.told(reviewer.one_of(neutral.SUMMARIES))
