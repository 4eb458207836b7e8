"""What an ordinary line is a sign of: work that gets on, a result, an answer, a goodbye. Words decide it
here alone.

    iter 30/1000  loss 0.52                      a count, `it` of 1000 is 30; work where it grows
    INFO: 10.0.0.8:44 - "POST /v1/completions HTTP/1.1" 200 OK          an answer
    mAP@[.5:.95]: 0.1149                         a result, where nothing comes after it
    Training finished.                           a goodbye
    done                                         a goodbye too, if it is the last line

A bar that is drawn again, and what wandb sums up when a process dies, are no signs of work: both come after
a fatal traceback.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from postmortem.blocks.sieve import Form, Sieve
from postmortem.model.digits import whole
from postmortem.system import lazy as late

SIEVE = Sieve()

# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────

_STEP = SIEVE.form(
    r"\b(?P<word>global[_ ]?step|step|iteration|iter|batch|update|it)s?(?:\b|_)"
    r"[ =:#\[(/]{0,8}(?P<step>\d{1,9})\b",
    re.IGNORECASE,
)
_EPOCH_STEP = SIEVE.form(r"\bEpoch:? ?(?:\[\d+\]|\d+)[ :]*\[ *(?P<step>\d{1,9})/\d+[ \]]|\| +(?P<bar>\d{1,9})/\d+ \[")
_OF_ALL = late.regex(r"(?<![\w/.:-])(?P<n>\d{1,9}) ?/ ?(?P<all>\d{1,9})(?![\w/.]|-\d|\]\[\d)")
_EPOCH = SIEVE.form(r"\bepochs?[\"']?[ =:#\[]{1,3}(?P<n>\d{1,6})\b", re.IGNORECASE)
_DONE_SO_FAR = SIEVE.form(
    r"\b(?:[Pp]rocess|[Gg]enerat|[Ee]valuat|[Ss]av|[Tt]rain)(?:ed|ing) (?P<what>\w*) ?#?(?P<n>\d{1,9})\b"
)
LOSS = SIEVE.form(r"\bloss'?\"?[ =:]{1,3}(?P<loss>nan|[-+]?\d[\d.e+-]*|inf)", re.IGNORECASE)
_PLANNED = SIEVE.form(
    r"\b(?:total|max(?:imum)?|num(?:ber)?(?: of)?|planned)[ _](?:\w+[ _]){0,2}"
    r"(?:step|iter(?:ation)?|update|batch)(?:e?s)?[ =:]",
    re.IGNORECASE,
)
_PREPARING = SIEVE.form(
    r"\W{0,4}(?:Loading|Downloading|Fetching|Tokenizing|Filter|Map|Generating)\b[^|%]{0,80}: +\d+%\|"
)
_TRYING = SIEVE.form(  # `retry 3/10`, `Trying again in 12.00 seconds... (6/100)`, `waiting for peers (5/60)`
    r"\b(?:retr(?:y|ies|ied|ying)|again|attempts?|wait(?:ing|ed)?|time ?out|timed out|fail(?:ed|ure|ing|s)?"
    r"|restarts?|reconnect\w*)\b",
    re.IGNORECASE,
)
# speaks of steps too, and is no rank; Ray's folded copies come seconds late, so they are no later progress
_KEEPER = SIEVE.form(
    r"Script (?:started|done)\b|(?:srun|scancel|sbatch|slurmstepd[\w-]{0,40}): |\*\*\* (?:STEP|JOB) \d"
    r"|\[repeated \d+x across cluster\]"
)
_CODE = late.regex(r"\s*(?:[│❱╭╰]|File \"|>>> |\++ \S)")  # a traceback's frames quote `if step == 31:`
_CLOSING = late.regex(r"\W{0,4}wandb:|\W{0,2}(?:Run summary|Run history)\b")  # printed by an exit handler


def of_a_keeper(body: str) -> bool:
    """Whether a scheduler or Ray speaks, and no rank."""
    return bool(_KEEPER.search(body))


def closes(body: str) -> bool:
    """Whether an exit handler sums up: wandb does so however the process ended."""
    return bool(_CLOSING.match(body))


def step(body: str) -> int | None:
    """The number of the step that a line names."""
    if (m := _EPOCH_STEP.search(body)) and not _PREPARING.match(body):
        found = whole(m["step"] or m["bar"])
    elif m := _STEP.search(body):
        found = whole(m["step"])
    else:
        return None
    planned = _PLANNED.search(body) and not LOSS.search(body)
    return None if planned or _is_no_news(body) else found


def _is_no_news(body: str) -> bool:
    """Whether somebody else speaks of steps, sums them up, or quotes code."""
    return of_a_keeper(body) or closes(body) or bool(_CODE.match(body))


def counts(body: str) -> Iterator[tuple[str, int]]:
    """What a line counts, each by its name: `("iter", 30)`, `("of 1000", 30)`. Tries and failures are no
    work."""
    if _is_no_news(body) or _PREPARING.match(body) or _TRYING.search(body) or cries(body):
        return
    for m in _OF_ALL.finditer(body, 0, 400):
        if 1 < whole(m["all"]) >= whole(m["n"]):
            yield f"of {whole(m['all'])}", whole(m["n"])
    if epoch := _EPOCH.search(body):
        yield "epoch", whole(epoch["n"])
    if so_far := _DONE_SO_FAR.search(body):
        yield so_far["what"], whole(so_far["n"])
    if (named := _STEP.search(body)) and (not _PLANNED.search(body) or LOSS.search(body)):
        yield named["word"].lower(), whole(named["step"])


_ANY_NUMBER = late.regex(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_ALONE = late.regex(r"(?<![\w.:/-])\d{1,12}(?![\w.:/-])")  # no part of a time, a path or a fraction
_WHO = late.regex(  # `worker 3 started` counts nobody's work
    r"(?:\b|_)(?:rank|worker|gpu|cuda|device|(?:sub)?process|child|pid|port|thread|node|core|cpu|layer|block|actor|shard|id)s?"
    r"\W{0,12}$",
    re.IGNORECASE,
)
ENOUGH = 3  # lines of one kind in which a number grows


def series(bodies: Sequence[str]) -> int | None:
    """The last line of a kind whose number is larger in each: `| timesteps | 4096 |`, `[00012] tr 0.31`."""
    kinds: dict[str, list[tuple[int, list[int]]]] = {}
    for i, body in enumerate(bodies):
        if not (_is_no_news(body) or _TRYING.search(body) or _PREPARING.match(body) or cries(body)):
            shape = " ".join(_ANY_NUMBER.sub("N", body[:200]).split())
            kinds.setdefault(shape, []).append((i, _alone(body[:200])))
    found = [rows[-1][0] for rows in kinds.values() if len(rows) >= ENOUGH and _one_grows(rows)]
    return max(found, default=None)


def rounds(bodies: Sequence[str]) -> int | None:
    """The last line of a loop that says the same few things again and again, and complains of none."""
    shapes = [" ".join(_ANY_NUMBER.sub("N", body[:200]).split()) for body in bodies]
    often = {shape for shape, n in Counter(shapes).items() if n >= ENOUGH and sum(map(str.isalpha, shape)) > ENOUGH}
    turns = [i for i, shape in enumerate(shapes) if shape in often]
    if len(turns) * 5 < len(bodies) * 3 or len(turns) < 2 * ENOUGH:
        return None
    if any(_is_no_news(body) or _TRYING.search(body) or troubled(body) for body in bodies):
        return None
    return turns[-1]


def _alone(body: str) -> list[int]:
    return [whole(m[0]) for m in _ALONE.finditer(body) if not _WHO.search(body, max(0, m.start() - 30), m.start())]


def _one_grows(rows: Sequence[tuple[int, list[int]]]) -> bool:
    """Whether a column of numbers is larger in each row."""
    width = min(len(numbers) for _, numbers in rows)
    for column in range(width):
        values = [numbers[column] for _, numbers in rows]
        if all(a < b for a, b in pairwise(values)):
            return True
    return False


# ── answers and results ─────────────────────────────────────────────────────────────────────────────────────

_PROBES = r"/(?:metrics|health|ping|ready|live)\w*[ /?]"
_ANSWER = SIEVE.form(
    r'"(?:POST|PUT) [^"]{1,400} HTTP/\d(?:\.\d)?" 2\d\d\b'
    rf'|"GET (?!{_PROBES})[^"]{{1,400}} HTTP/\d(?:\.\d)?" 2\d\d\b'
    r"|\bgeneration throughput: (?!0\.0 )\d|\bgen throughput \(token/s\): (?!0\.0)\d"
)
_SERVES = SIEVE.form(  # it is up; somebody may have stopped it on purpose
    r"\bApplication s(?:tartup|hutdown) complete\b|\bUvicorn running on\b|HTTP/\d(?:\.\d)?\" 2\d\d\b"
    r"|\bgeneration throughput: \d|\bThe server is fired up\b|\bserver\.rs:\d+: Connected$|\b[Ss]erver is (?:up|ready|running)\b(?! yet)"
)


def answers(body: str) -> bool:
    """Whether a server has answered a request, or its engine made tokens. A probe's answer says nothing of
    the engine."""
    return bool(_ANSWER.search(body))


def serves(body: str) -> bool:
    """Whether a server is up, or was when it was asked to stop."""
    return bool(_SERVES.search(body))


_METRIC = SIEVE.form(
    r"(?:acc\w*|loss|f1|top-?\d|precision|recall|m?ap|m?iou|bleu|rouge|auc|score|dice|psnr|ssim|rmse|mae|mse"
    r"|perplexity|ppl|speed\w*|through\w*|time|average|avg|mean|best|total|val\w*|test\w*|eval\w*|results?"
    r"|\bvs\b[^:]{0,40})\b[\w .@\[\]:%()/'\"-]{0,40}[=: ] ?-?\d+\.\d",
    re.IGNORECASE,
)
_ROW = late.regex(
    r"(?:\w[\w@./=()+-]{0,39}(?: [\w@./=()+-]{1,20}){0,5}|[\w@./-]{1,40})(?:[ \t|,]+-?\d{1,9}\.\d{1,9}%?){2,}"
    r"(?:[ \t|]*| +\(\d+\.\d+x\))$|-?\d+\.\d+(?:[ \t,]+-?\d+\.\d+){2,}[ \t]*$"
)
_CELL = late.regex(r"\|\s*[\w/]+(?:[ _/][\w/]+)*\s*\|\s*-?\d+(?:\.\d+)?(?:e[-+]?\d+)?\s*\|$")  # a logger's table
_PAIRS = SIEVE.form(r"(?:[A-Za-z][\w ]{0,30}: ?\d+(?:\.\d+)?[ |,;]*){2,}$")
_KEPT = SIEVE.form(
    r"\b(?:saved|wrote|written|exported|uploaded|stored|dumped|synced)\b|\bSaving (?:model|checkpoint|final)"
    r"|\bpushed to\b|\bresults? (?:in|at|to)\b|\bbest (?:ckpt|checkpoint|model)(?: path)?: \S",
    re.IGNORECASE,
)
_NO_RESULT = SIEVE.form(
    r"\b(?:not|never|fail\w*|error|cannot|could|unable|will be|going to|if|before|skip\w*|abort\w*|missing"
    r"|RAM|memory|usage|runtime)\b",
    re.IGNORECASE,
)
_SETTING = late.regex(r"\W*(?:lr|learning[_ ]rate|seed|dropout)\b", re.IGNORECASE)


def result(body: str) -> bool:
    """Whether a line gives a result: a score, a row of a table of scores, or what was written where."""
    if closes(body) or _NO_RESULT.search(body) or _SETTING.match(body):
        return False
    return any(form.search(body) for form in (_METRIC, _PAIRS, _KEPT)) or bool(_ROW.match(body) or _CELL.match(body))


# ── complaints ──────────────────────────────────────────────────────────────────────────────────────────────

_COMPLAINT = SIEVE.form(
    r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b(?!\s*$)"
    r"|\b(?:[Ss]kip(?:ped|ping)?|[Ee]xception|[Ff]ailed|[Rr]etry(?:ing)?|[Cc]ould not|[Cc]annot"
    r"|[Uu]nable to|[Ss]tall\w*|corrupt\w*)\b"
)
_BENIGN = SIEVE.form(
    r"UserWarning|FutureWarning|DeprecationWarning|Warning: |0 (?:failed|errors?|skipped)|OMP_NUM_THREADS"
)
# `0 ERROR`, `no ERROR` and `ERROR: 0` count errors, a last word may be a table's head; glog's E is Ray's and
# C++'s
_LEVEL = SIEVE.form(
    r"(?<!\bno )(?<!\b0 )\b(?:CCL_)?(?:ERROR|FATAL|CRITICAL)\b(?!s?\"?[ =:]+(?:0\b|none\b|no\b\W*$)|\s*$)"
    r"|\blevel=(?:error|fatal)\b|\[(?:error|fatal|critical)\]|(?:^|[ \])])\[?E\d{4} \d\d:\d\d:\d\d|\d[.,]\d{3} [EC] \d+ \d+\]"
    r"|^[\w./-]{2,40}: (?:fatal )?error: |\bNCCL WARN\b"
)
_RAISED = SIEVE.form(  # an exception without its traceback, and what a shell says of a line of its script
    r"^[^\w>]{0,4}(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|Error|Fatal error|FATAL)[:(]"
    r"|: line \d+: .{1,200}: [A-Za-z]|^bash: .{1,200}: (?:command|No such)"
    r"|\b(?i:training|job|run|build|script|pipeline|inference|evaluation|launch)"
    r" (?i:failed|aborted|crashed)\b"
    r"|\b[Aa]borting (?:training|the |run|job)|\b(?:[Ss]ending|[Ss]ent) SIG(?:KILL|TERM|ABRT)\b"
    r"|\b[Ee]rror: (?!(?:None|none|nan|no)\b)[A-Z]\w* |\bfailed with [\w ]{0,30}error\b"
    r"|\bclosed by remote host\b|^client_loop: send disconnect|^Aborted[.!]$"
    r"|\b[Kk]illing (?:the (?:job|run)|all|workers|processes)\b"
    r"|\b(?:[Ee]xit|[Rr]eturn)(?:ed)?(?: with)?[ _]?(?:code|status)?[ =:]{1,3}-?[1-9]\d{0,2}\W*$"
)
_SHRUGGED = SIEVE.form(  # `couldn't chdir to /home/x: going to /tmp instead`; uvicorn's INFO behind a logger's ERROR
    r"\b(?:ignor(?:ed|ing)|skipp(?:ed|ing)|retry(?:ing)?|non-fatal|harmless|safely|instead|falling back"
    r"|deprecat\w*)\b|\bINFO\b",
    re.IGNORECASE,
)


def complains(body: str) -> bool:
    """Whether a line may tell of trouble: what is compared between ranks where no pattern knows any."""
    return bool(_COMPLAINT.search(body)) and not _BENIGN.search(body)


def cries(text: str) -> bool:
    """Whether a line tells of an error, by its level or its words, and does not say itself that it is
    none."""
    return bool(_LEVEL.search(text) or _RAISED.search(text)) and not _SHRUGGED.search(text)


def troubled(body: str) -> bool:
    """Whether a line is worth to be known if it is one of the last."""
    return cries(body) or complains(body)


# ── goodbyes ────────────────────────────────────────────────────────────────────────────────────────────────

_OBJECTS = (  # what may be `finished` where nothing else names it
    r"training|run\w*|job|all|every\w*|in|after|at|on|with|without|normally|successfully|server|main|eval\w*"
    r"|inference|testing|cleanly|the (?:training|run|job)|exit\w*|process\w*"
)
_GOODBYE = SIEVE.form(
    r"\b(?:training|train|run|job|fit|trial|experiment|script|benchmark|evaluation|execution|generation"
    r"|inference|all epochs?|all \w+)\b[^.]{0,24}"
    r"\b(?:finished|complete[d]?|done|ended|succeeded|successful(?:ly)?|stopped)\b"
    r"|^\W*(?:\w+ ?[:\-] ?)*(?:(?:rank|worker|process|proc|node|gpu|r|w)[ _#-]?\d{1,5} (?:has |is )?)?"
    r"(?:finished|completed?|all done|exiting normally|bye)(?![a-z])"
    rf"(?=[\W_\d]*$|\W*\d|[ :,-]+(?:{_OBJECTS})\b)"
    r"|\bdone\b[ ,:(]{1,3}(?P<all>\d{1,9}) ?(?:of|/) ?(?P=all)\b"  # `done, 160 of 160 steps`
    r"|\b(?P<whole>\d{1,9}) ?(?:of|/) ?(?P=whole) (?:\w{1,12} )?(?:finished|done|completed?)\b"  # `120/120 finished`
    r"|\ball done[.! ]*$|exit: 0 failed|Exiting with code 0|^configure: exit 0"
    r"|\bsuccessfully (?:built|tagged|installed|finished|completed|trained|quantized)\b"
    r"|\btotal (?:training|elapsed|run(?:ning)?) time\b|\btraining time[ =:]+[\d(]"
    r"|\b(?:exit|status|return(?:ed)?|exit[ _]?code|ret_code|rc|exited with)(?: code| status)?[ =:]+0(?:\W*$|;)",
    re.IGNORECASE,
)
_FORM = SIEVE.form(  # goodbyes of programs, whatever else the line says
    r'"key": "(?:run_stop|status)", "value": (?!"aborted)'  # MLPerf
    r"|^(?:\W*\d+: )?(?:RESULT,[\w -]+,|ENDING TIMING RUN AT|RUNANDTIME_STOP \d)"
    r"|^=* ?\d+ passed(?:, \d+ (?:skipped|warnings?|deselected|xfailed|xpassed))* in [\d.]+"  # pytest
    # Lightning, nccl-tests, DeepSpeed
    r"|`Trainer\.fit` stopped: `max_|# Avg bus bandwidth|\bexits successfully\b"
    r"|\[shutdown\] .{0,80}shutting down|\blaunch \d+ succeeded\b",
    re.IGNORECASE,
)
_LAST_WORDS = SIEVE.form(  # and what no script says that failed
    r"\b(?:training|run|job|all epochs?|execution)\b[ \w]{0,24}\b(?:finished|completed?|succeeded)\b(?! ?(?:at|on)\b)"
    r"|\b(?:training|run|job)\b[ \w]{0,24}\b(?:ended|exited|returned|left) with (?:code |status )?0\W*$"
    r"|训练(?:已)?(?:完成|结束)|程序(?:已)?结束|学習(?:が)?(?:完了|終了)|학습(?:이)? 완료|обучение завершено"
    r"|treinamento conclu[ií]do|entrenamiento (?:finalizado|terminado|completado)|entra[iî]nement termin[eé]"
    r"|training (?:abgeschlossen|beendet)",
    re.IGNORECASE,
)
# all that a logger's line says, and the last line; `epoch 3: done` and `[12/60] done` say it of something
# else
_DONE = SIEVE.form(
    r"(?:^|\| ?|\bINFO:?[ \t]+|\bINFO:[\w.]{1,60}:|[^\W\d][ _-]?\d{0,6}[\])\u3011] ?"
    r"|\b(?!(?i:epoch|step|iter\w*|batch|stage|phase|round|fold|shard|part|chunk|file|layer)\b)"
    r"[^\W\d]{1,20}[ _#]?\d{1,6}: ?|^\d{1,6}: )"
    r"[Dd]one(?:[,:;] (?!.{0,60}\b(?:retry|again|next|now|start|wait))[^\W\d][\w ./-]{2,60}|[.!]?(?:[ \t]+[\w./-]{1,80}\.py:\d+)?|[:,]? ?(?:-+>|→) ?\S{1,200})[ \t]*$"
)
_PARTS = r"epoch|step|iteration|batch|round|phase|test case|stage|task|shard|file"
_NOT_GOODBYE = late.regex(
    r"not (?:finished|complete|done)|\b(?:unable|cannot|can't|could ?n[o']t)\b|incomplete|before|error|fail(?!ed, 0|ures?: 0)|dataset|download|load"
    rf"|tokeniz|epoch \d+ (?:done|finished|complete)|(?:finished|completed) (?:\w+ )?(?:{_PARTS})\b|startup"
    r"|EXIT_CODE=\"[1-9]|(?:exit|status|return|code)[ =:\"]+-?[1-9]|\bonce\b|\bwhen\b"
    r"|\bafter (?:the )?(?:run|training) (?:is|has)\b"
    # `shard 4 done`; a numbered process may be done with all
    r"|\b(?!(?:rank|worker|process|proc|node|gpu|trainer|task|replica|run|job|trial|experiment|r|w|p|rk)\b)[a-z]+ #?\d+"
    r"(?:/\d+)?:? (?:is |was )?(?:done|finished|completed?)\b(?! \()",
    re.IGNORECASE,
)
_NO_ERROR = late.regex(
    r"\b(?:0|no|without)(?: \w+)? (?:errors?|failures?|failed)\b"
    r"|\b(?:errors?|failures?|failed): ?(?:0|none)\b",
    re.IGNORECASE,
)


def goodbye(body: str) -> bool:
    """Whether a line says that the work is done."""
    if _FORM.search(body):
        return True
    return (_says(_GOODBYE, body) or _says(_LAST_WORDS, body)) and not of_a_keeper(body)


def last_word(body: str) -> bool:
    """Whether it is a goodbye that a failing script would not print, so that what comes after it came while
    the process left."""
    return bool(_FORM.search(body)) or _says(_LAST_WORDS, body)


def _says(form: Form, body: str) -> bool:
    return bool(form.search(body)) and not _NOT_GOODBYE.search(_NO_ERROR.sub("", body))


def done(body: str) -> bool:
    """Whether a line says no more than `done`: a goodbye if it is the last."""
    return bool(_DONE.search(body))
