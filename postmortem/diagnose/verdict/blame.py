"""The root -> the ranks and hosts to blame: those that its line names, else those that a comparison, a copy, the
launcher's list of exit codes, GPU numbers or elimination identify.

-- Process 0 terminated with the following error:      the copy in the report of torch.multiprocessing.spawn
rank      : 1 (local_rank: 1)   exitcode  : 1          the only rank that failed by itself, or all with one code
CUDA out of memory. … GPU 3 has a total capacity of    one host, several numbers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims import exits
from postmortem.diagnose.compare.rank_rows import odd_one_out
from postmortem.diagnose.who import elimination
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.formats import endings
from postmortem.formats.lineform import gist
from postmortem.model.digits import number
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import OF_PEERS, OF_THE_GROUP

MOST_GPUS = 16  # on one host
Ranks = tuple[int, ...]
Way = Callable[[Case, Claim, Sequence[Claim]], Ranks]


def culprits(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks to blame; empty where no rank is at fault or none is known."""
    compared = _by_the_group(root, claims)
    if compared is not None:
        return compared.ranks
    return _first_nan(root, claims) or root.ranks or _by_other_lines(case, root, claims)


def _first_nan(root: Claim, claims: Sequence[Claim]) -> Ranks:
    """Those whose own loss was NaN first, where all raise in the end: it spreads with the gradients."""
    if root.pattern.category != "numerics" or len(root.ranks) == 1:
        return ()
    nans = [(c.event.fields.get("step"), c) for c in claims if "finite-loss" in c.pattern.survived_by and c.ranks]
    first = min((step for step, _ in nans if step is not None), default=None)
    return _ranks(c for step, c in nans if step == first)


def _by_other_lines(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks behind a root that has none, by its category and the kind of its subject."""
    category, entity = root.pattern.category, root.pattern.entity
    if "limit" in root.event.fields and category == "ddp-usage":
        return _other_model(root)
    if category == "host-oom" and entity in ("host", "pid", "job"):
        return _out_of_memory(case, root, claims)
    if entity == "job":
        return _of_a_job(case, root, claims)
    if entity in ("rank", "missing-ranks"):  # a complaint whose line names them
        return _ranks(c for c in claims if c.event is root.event and c.pattern.id == root.pattern.id)
    return _of_nameless_error(case, root, claims) if entity == "self" else ()


def _of_nameless_error(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks behind a line without a rank; a mere complaint accuses only those that its line names, and the rank
    that reports the loss of its own child."""
    suffered = root.strength == "suffered"
    parents = case.ranks_of(root.events) if suffered and root.tells("child") else set()
    found = (way(case, root, claims) for way in (WAYS[:2] if suffered else WAYS))
    ranks = tuple(parents) if len(parents) == 1 else next(filter(None, found), ())
    return ranks if suffered or len(ranks) >= len(_raised_alike(root, claims)) else ()


def _raised_alike(root: Claim, claims: Sequence[Claim]) -> Sequence[Claim]:
    """The same uncaught error of several processes without a rank: a launcher that reports one of them leaves the others
    unnamed."""
    own = [c for c in claims if c.pattern.id == root.pattern.id and not c.ranks and endings.uncaught(c.event)]
    return [c for c in own if c.role == "cause" and c.event.where.source == root.event.where.source]


def _of_a_job(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks at a limit, the one that could not open the store, or the one that was interrupted."""
    if root.pattern.category == "resource-limit":
        return _of_category([c for c in claims if c.pattern.derived], root.pattern.category)
    if root.tells("store"):
        # no rank but 0 listens (torch/distributed/rendezvous.py); an agent of torchrun that could not is no rank
        raised = [
            e for e in case.by_source[root.event.where.source] if e.kind == "exception" and e.end == root.event.end
        ]
        return (0,) if any("init_process_group" in f for e in raised for f in e.fields.get("frames", ())) else ()
    return _interrupted(case, root, claims) if root.event.fields.get("excepthook") else ()


def _interrupted(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The only rank that raised KeyboardInterrupt, where others lost it: Ctrl-C at a terminal interrupts all of them."""
    ranks = case.ranks_of(e for c in claims if c.pattern.id == root.pattern.id for e in c.events)
    peers = (c for c in claims if c.kind in OF_PEERS)
    others = case.ranks_of(e for c in peers for e in c.events) - ranks
    return tuple(ranks) if len(ranks) == 1 and others and not case.telling("stop") else ()


def _of_category(claims: Iterable[Claim], category: str | None) -> Ranks:
    return _ranks(c for c in claims if c.pattern.category == category)


def _ranks(claims: Iterable[Claim]) -> Ranks:
    return tuple(sorted({r for c in claims for r in c.ranks}))


# ── a line about the group ──────────────────────────────────────────────────────────────────────────────────


def _by_the_group(root: Claim, claims: Sequence[Claim]) -> Claim | None:
    """The comparison of the ranks that identifies the one meant by a line about the whole group."""
    category = root.pattern.category
    if root.strength != "stated" or category not in OF_THE_GROUP or root.pattern.entity == "missing-ranks":
        return None
    named = root.ranks and category == "collective-mismatch"  # the line itself names the ranks that differ
    wanted = ("collective-mismatch",) if named else (*OF_THE_GROUP, None)
    return next((c for c in claims if c.pattern.derived and c.ranks and c.pattern.category in wanted), None)


def identified(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """The claims, causes about the whole group with the ranks, the reason and the proof of the comparison that identifies
    those meant."""
    return [_compared(case, c, claims) if c.role == "cause" else c for c in claims]


def _compared(case: Case, cause: Claim, claims: Sequence[Claim]) -> Claim:
    if cause.strength != "stated" or cause.pattern.category not in OF_THE_GROUP or cause.pattern.says_why:
        return cause
    ranks = culprits(case, cause, claims)
    same = [c for c in claims if c.pattern.derived and ranks and c.ranks == ranks]
    found = min(same, key=lambda c: c.pattern.category not in OF_THE_GROUP, default=None)  # no mere exit code
    if found is None:
        return cause
    events = (*cause.events[:1], *found.events[:2], *cause.events[1:])
    return replace(cause, ranks=ranks, because=found.because, events=events, strength="compared")


def _other_model(root: Claim) -> Ranks:
    """The minority by number of parameters: each rank prints its own number and that of the first that differs."""
    parameters: dict[int, int] = {}
    for e in root.events:
        first = number(e.fields.get("ranks")), number(e.fields.get("limit"))
        for r, n in ((e.fields.get("rank"), number(e.fields.get("detail"))), first):
            if r is not None and n is not None:
                parameters.setdefault(r, n)
    odd, majority = odd_one_out(grouped((n, r) for r, n in parameters.items()))
    return tuple(sorted(odd)) if majority else ()


def _out_of_memory(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The rank whose memory ran out, where the line names a host or a job: as srun names it, else the one that
    another line, an exit code or its silence identifies."""
    named = _of_category((c for c in claims if c.pattern.entity == "rank"), "host-oom")
    if named and root.pattern.entity == "host" and root.by("of_jobs") and not root.pids:
        return named
    others = [c for c in claims if c is not root and c.role in ("cause", "confirms")]
    if not (found := _of_category(others, "host-oom")):
        heard = {r: c.event for c in claims if c.accuses for r in c.ranks}
        lives = elimination.with_errors(elimination.lives(case, exits.reported_ends(claims)), heard)
        killed = elimination.Orphan((root.event._replace(at=None),), "kill")
        found = _noted(case, root, elimination.owners(killed, lives, alone=True))
    return found if len(found) == 1 else ()


def _noted(case: Case, root: Claim, found: tuple[Ranks, str]) -> Ranks:
    ranks, why = found
    if ranks:
        case.note(f"{root.event.where} does not name its rank; {why}")
    return ranks


# ── an error without a rank ─────────────────────────────────────────────────────────────────────────────────


def _by_another_line(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The one rank that prints under its name the line that a process prints next that died of this; that a launcher's
    report of a failed process names, as Open MPI's `Process name: [[55641,1],3]`; or that vanished, where a shell
    reports the end of a process."""
    for belongs in ON_ANOTHER_LINE:
        ranks = _ranks(c for c in claims if belongs(root, c))
        if len(ranks) == 1:
            return _noted(case, root, (ranks, f"another line on its end is that of rank {ranks[0]}"))
    return ()


ON_ANOTHER_LINE: tuple[Callable[[Claim, Claim], bool], ...] = (
    lambda root, c: c.accuses and (c.pattern.id, "same-rank") in {(x.id, x.join) for x in root.pattern.explains},
    # its parent's report
    lambda root, c: c.role == "cause" and root.tells("child") and c.pattern.id == root.pattern.id,
    lambda root, c: c.accuses and bool(c.pattern.stands_for) and c.pattern.entity == "rank",
    lambda root, c: root.strength == "ended" and (c.strength, c.pattern.category) == ("silent", "peer-lost"),
)


def _eliminated(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks that remain where facts about the others exclude these (see `elimination`)."""
    nameless = [c for c in claims if not c.ranks and c.pattern.entity == "self"]
    causes = [c for c in nameless if c.role == "cause"]
    alone = all(c.pattern.id == root.pattern.id for c in causes)
    lives = elimination.lives(case, exits.reported_ends(claims))
    for o in (_orphan(root, causes), _orphan(root, nameless)):
        ranks, why = elimination.owners(o, lives, alone)
        if len(ranks) == o.printers or (len(ranks) > 1 and not any(_is_another(c, root) for c in claims)):
            return _noted(case, root, (ranks, why))
    return ()


def _orphan(root: Claim, claims: Sequence[Claim]) -> elimination.Orphan:
    lines = {e.where: e for c in (root, *claims) if c.pattern.id == root.pattern.id for e in c.events}
    return elimination.Orphan(tuple(lines.values()), "crash" if root.pattern.category == "native-crash" else "own")


def _is_another(c: Claim, root: Claim) -> bool:
    """Whether it is a failure of a different kind, or of a rank that has a name."""
    own = c.role in ("cause", "symptom") and c.pattern.entity == "self"
    if not own or c.pattern.derived or c.pattern.generic:
        return False
    return bool(c.ranks) or c.pattern.category != root.pattern.category


def _by_a_copy(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The ranks of the copies of the same line that have one, unless more copies have none. A report may break a
    long message into lines."""
    text = gist(root.event.text)
    others = ((c, gist(c.event.text)) for c in claims if c.pattern.id == root.pattern.id)
    copies = [c for c, other in others if other.startswith(text) or text.startswith(other)]
    ranks = _ranks(copies)
    lines = grouped((bool(c.ranks), e.where) for c in copies for e in c.events)
    if not ranks or len({*lines[False]}) > len({*lines[True]}):
        return ()
    case.note(f"{root.event.where} and the report on {ranks_text(ranks)} are copies of one error")
    return ranks


def _by_gpus(case: Case, root: Claim, claims: Sequence[Claim]) -> Ranks:
    """The numbers of the GPUs that the copies of an error name, in a job on one host. A number is an index inside
    CUDA_VISIBLE_DEVICES, so one number alone may be that of any rank, unless the job has only one."""
    alike = [c for c in claims if c.pattern.category == root.pattern.category and c.role == "cause"]
    gpus = sorted({n for c in alike for e in c.events if (n := e.fields.get("gpu")) is not None})
    known = case.registry
    fits = gpus[-1] < (known.limit or MOST_GPUS) if len(gpus) > 1 else known.world == 1 and gpus == [0]
    if not fits or len({h for c in alike for h in c.hosts}.union(known.host_of.values())) > 1:
        return ()
    case.note(f"the errors name GPU{'s' if len(gpus) > 1 else ''} {listed(list(map(str, gpus)))} of one host")
    return tuple(gpus)


WAYS: tuple[Way, ...] = (_by_another_line, _eliminated, _by_a_copy, _by_gpus)


def hosts(case: Case, root: Claim, ranks: Ranks, claims: Sequence[Claim]) -> list[str]:
    """The hosts that the root names, else those of its ranks, else those that another line on the same trouble names
    for these ranks. A stop of the whole job has one where only one of its agents was stopped."""
    if root.pattern.entity == "job" and not ranks:
        return _stopped_agent(case, root, claims)
    if root.hosts:
        return list(root.hosts)
    of_ranks = {h for r in ranks if (h := case.registry.host_of.get(r))}
    alike = [c for c in claims if c.ranks and c.role == "cause" and c.pattern.category == root.pattern.category]
    return sorted(of_ranks or {h for c in alike if set(c.ranks) <= set(ranks) for h in c.hosts})


def _stopped_agent(case: Case, root: Claim, claims: Sequence[Claim]) -> list[str]:
    stopped = {c.event.host for c in claims if c.tells("stop")}
    several = root.tells("stop") and len({e.host for e in case.events}) > 1
    return [h for h in stopped if h and several and len(stopped) == 1]
