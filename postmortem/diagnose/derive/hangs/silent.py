"""Those who wait shout; the one they wait for says nothing, comes late, or was last heard elsewhere."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import Scene, View, overtaken_ranks, words_of
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.digits import number

_BAR = re.compile(r"\d+%\||\d+/\d+ \[\d|examples? \[\d\d:\d\d|\d+(?:\.\d+)? ?(?:it|s|examples|B|MB|GB)/s|\[\d\d:\d\d<")
_COMPLAINT = re.compile(r"gloo|nccl|NCCL|peer|store|[Tt]imed out|[Tt]imeout|[Cc]onnection|ProcessGroup|socket")
FEW = 8  # a collective number this low means that the job was still setting up


def silence(scene: Scene) -> Claim | None:
    """It counts only if the rank's own log is there, or all others' are."""
    suspects = _suspects(scene)
    if not suspects:
        return None
    shouting = scene.shouting
    views = scene.views | {r: View(r) for r in suspects if r not in scene.views}
    if not scene.waiting and not any(c.pattern.category == "collective-mismatch" for c in scene.claims):
        return _gone(scene, views, suspects)
    stack = views[suspects[0]].stack
    where = f" (it was at {stack.fields.get('code') or '?'})" if stack else ""
    proof = [views[r].stack or views[r].last for r in suspects] + [views[r].proof for r in shouting]
    because = f"{ranks_text(shouting)} reported an error, {ranks_text(suspects)} did not{where}"
    return scene.make("rank-never-arrived", suspects, proof, because)


def _gone(scene: Scene, views: Mapping[int, View], suspects: Sequence[int]) -> Claim | None:
    """Who is gone where nobody waited until a time-out: with an error of its own for a last word, or
    without a word."""
    shouting = scene.shouting
    proof = [views[r].last for r in suspects] + [views[r].lost for r in shouting]
    told = _gave_up(views[suspects[0]]) if len(suspects) == 1 else None
    if told is not None:
        because = (
            f"{ranks_text(suspects)} logged `{message(told.text)}`, and {ranks_text(shouting)} lost the connection"
        )
        return scene.make("rank-gave-up", suspects, [told, *proof], because)
    because = f"{ranks_text(suspects)} fell silent, and {ranks_text(shouting)} lost the connection"
    return scene.make("rank-vanished", suspects, proof, because)


def _gave_up(view: View) -> Event | None:
    """A rank's last line, where that is an error of its own, and not what a supervisor says of its end."""
    last = max(view.lines, key=lambda e: e.where.line or 0, default=None)
    if last is None or not (last.fields.get("cries") and last.fields.get("last")):
        return None
    told = view.end.told_by if view.end is not None else None
    return None if told is not None and told.where == last.where else last


def _suspects(scene: Scene) -> list[int]:
    """The silent ranks whose silence means something."""
    quiet = scene.quiet or _gap(scene)
    if not 0 < len(quiet) <= len(scene.shouting):
        return []
    logged = [r for r in quiet if r in scene.views and scene.views[r].lines]
    if logged and 2 * len(logged) <= len(quiet):
        return []  # of most of the silent ranks nothing is here: any of them may be the one
    if logged:
        return elsewhere(scene, logged) or logged
    return quiet if len(quiet) == 1 and (quiet[0] not in scene.views or _logs_are_complete(scene)) else []


def _gap(scene: Scene) -> list[int]:
    """The one rank below the highest of which nothing is here, where all others complain: it ran without a
    name on its lines."""
    missing = sorted(set(range(max(scene.views, default=0))) - set(scene.views))
    return missing if len(missing) == 1 and len(scene.shouting) >= 3 else []


def _logs_are_complete(scene: Scene) -> bool:
    """Whether every other rank has a file of its own here, or speaks on a common console, so that one
    rank's silence means something."""
    own = set(scene.case.registry.by_source.values())
    world = scene.case.registry.world or len(scene.views)
    stopped = any(v.silent and v.stopped for v in scene.views.values())  # it lived until the launcher ended it
    return world >= 2 and (len(own) >= world - 1 or (stopped and len(scene.waiting) == world - 1))


def elsewhere(scene: Scene, quiet: Sequence[int]) -> list[int]:
    """Of several silent ranks those whose last words none who waited said: the others got as far as
    these, and wait like them. Not rank 0 alone, which is often the only one that talks."""
    words = {r: said for r in (*scene.shouting, *quiet) if (said := words_of(scene.views[r])) is not None}
    usual = {words[r] for r in scene.shouting if r in words}
    odd = [r for r in quiet if r in words and words[r] not in usual]
    if not usual or odd == [0] or len(odd) >= len(quiet):
        return []
    return odd if all(r in words for r in quiet) else []


def overtaken_by(stuck: Mapping[int, Event]) -> str:
    """The reason in words."""
    said = message(next(iter(stuck.values())).text)
    return f"{ranks_text(stuck)} stopped at `{said}`; all others went on"


def stuck(scene: Scene) -> dict[int, Event]:
    """The silent ranks that all others went beyond, and the last that each said; empty where most stand
    so, or where of one nothing is known."""
    words = {r: v.words for r, v in scene.views.items() if v.words}
    if len(words) < 3 or set(words) < set(scene.views):
        return {}
    behind = [r for r in overtaken_ranks(scene) if r in scene.quiet]
    last = {r: said[0] for r in behind if (said := scene.views[r].last_words)}
    return last if 2 * len(behind) < len(words) else {}


def late(scene: Scene) -> Claim | None:
    """No rank is silent. The others timed out, and one found their connections closed: it came when they
    had given up, for had it waited with them it would have timed out with them."""
    if scene.quiet or not scene.waiting:
        return None
    views = scene.views
    came = [r for r, v in views.items() if v.complaint is None and v.lost is not None and v.fatal is None]
    if len(came) != 1 or len(scene.waiting) + 1 != len(views) or not _after(views[came[0]], views, scene.waiting):
        return None
    rank = came[0]
    proof = [*views[rank].last_words[:1], views[rank].lost, *(views[r].complaint for r in scene.waiting)]
    because = f"rank {rank} entered after {ranks_text(scene.waiting)} had timed out, and found the connection closed"
    return scene.make("rank-never-arrived", [rank], proof, because)


def _after(view: View, views: dict[int, View], waiting: Sequence[int]) -> bool:
    """Whether a rank's loss is not known to have come before the others' time-outs."""
    lost = view.lost.at if view.lost is not None else None
    gave_up = [e.at for r in waiting if (e := views[r].complaint) is not None and e.at is not None]
    if lost is None or not gave_up or view.lost is None:
        return True
    return lost + 2 * view.lost.at_sigma + 1.0 >= min(gave_up)


def busy_rank0(scene: Scene) -> Claim | None:
    """In a merged console only rank 0 draws progress bars. One that still moves when the others time out
    is what they waited for."""
    complaints = [v.complaint for v in scene.views.values() if v.complaint is not None]
    if not complaints or 0 in scene.waiting or any((number(e.fields.get("seq")) or 0) > FEW for e in complaints):
        return None
    for e in complaints:
        bar = _bar_above(e)
        if bar is not None:
            rank = scene.case.rank_of(e)
            where = f" in collective {e.fields['seq']}" if e.fields.get("seq") else ""
            because = f"rank 0 was still busy when rank {rank} timed out{where}"
            return scene.make("rank0-still-busy", [0], [bar, e], because)
    return None


def _bar_above(e: Event) -> Event | None:
    """The progress bar drawn last above a complaint, or in front of it on the same line."""
    nearby = [*e.context[: e.before], e.text]
    for i in range(len(nearby) - 1, -1, -1):
        if _BAR.search(nearby[i].split("[E ")[0].split("[rank")[0]):
            if i == len(nearby) - 1:
                return e
            line = (e.where.line or 0) - (e.before - i)
            where = e.where._replace(line=line, end_line=None)
            return e._replace(where=where, text=nearby[i], rank=None, context=(), before=0)
    return None


def behind(scene: Scene) -> Claim | None:
    """All complain alike: then the rank whose last step is lowest is the suspect."""
    steps = {r: v.step for r, v in scene.views.items() if v.step is not None}
    if len(steps) < 3 or len(steps) < len(scene.views):
        return None
    common, n = max(Counter(steps.values()).items(), key=lambda item: (item[1], item[0]))
    low = [r for r, s in steps.items() if s < common]
    if n < len(steps) - 1 or len(low) != 1:
        return None
    if low[0] in scene.case.ended("kill") and not scene.waiting:
        return None  # nobody waited until a time-out: it came less far because it was killed
    because = f"rank {low[0]} was at step {steps[low[0]]}; all others were at step {common}"
    return scene.make("rank-behind", low, [scene.views[low[0]].last], because)


def odd_notice(scene: Scene) -> Claim | None:
    """A warning that one rank alone printed while it still worked: a swallowed exception shows only like
    this."""
    by_shape: dict[str, dict[int, Event]] = defaultdict(dict)
    for e in scene.case.of_kind("notice"):
        rank = scene.case.rank_of(e)
        if rank is not None and not _COMPLAINT.search(e.text):
            by_shape[shape(e.text)].setdefault(rank, e)
    lone = [next(iter(found.items())) for found in by_shape.values() if len(found) == 1]
    ranks = {rank for rank, _ in lone}
    talking = [r for r, v in scene.views.items() if v.lines]
    if len(talking) < 2 or len(ranks) != 1:
        return None
    events = sorted((e for _, e in lone), key=lambda e: (e.at or 0.0, e.where.line or 0))[:3]
    because = f"only {ranks_text(ranks)} logged `{message(events[0].text)}`"
    return scene.make("odd-warning-on-one-rank", ranks, events, because)


def asked_to_stop(scene: Scene) -> Claim | None:
    """One rank says that it was asked to stop, and all others lost it: nobody who stops a job asks only one."""
    asked = {
        rank: c.event for c in scene.claims if c.tells("asked") and (rank := scene.case.rank_of(c.event)) is not None
    }
    lost = [r for r, v in scene.views.items() if v.lost is not None]
    if len(asked) != 1 or not lost or scene.case.ends or len(lost) + 1 != len(scene.views) or set(asked) & set(lost):
        return None
    because = f"{ranks_text(asked)} reported that it was asked to stop, and {ranks_text(lost)} lost the connection"
    proof = [*asked.values(), *(scene.views[r].lost for r in lost)]
    return scene.make("rank-was-stopped", asked, proof, because)
