"""Parts of a job in which nothing may be printed for long, by the last line or by the code that runs.

"Saving checkpoint to /ckpt/step_1000"                        checkpoint
frames in torch/_inductor/                                    compile
"""

from __future__ import annotations

import re
from collections.abc import Iterable

START = "start"  # before the first step
_SAID = {
    "checkpoint": (
        r"\b(?:sav(?:e|ing)|writ(?:e|ing)|load(?:ing)?|restor(?:e|ing)|upload(?:ing)?|resum(?:e|ing))\b"
        r".{0,60}\b(?:checkpoints?|ckpt|snapshot|model|weights|state[_ ]dict|shards?)"
    ),
    "evaluation": r"\b(?:eval(?:uat\w+)?|validat\w+|testing|benchmark\w*)\b",
    "compile": (
        r"\b(?:compil(?:e|ing|ation)|autotun\w+|inductor|dynamo|warm(?:ing)?[ -]?up|tracing"
        r"|captur\w+ (?:cuda )?graphs?|building (?:extension|kernel|engine)s?)\b"
    ),
    "data": (
        r"\b(?:download\w*|fetching|pre-?process\w*|tokeniz\w+|index(?:ing)?|shuffl\w+"
        r"|build(?:ing)? (?:the )?(?:data|index|vocab)\w*|load(?:ing)? (?:the )?(?:data|train|val)\w*"
        r"|prepar\w+ (?:the )?data\w*)\b"
    ),
    START: r"\b(?:initiali[sz](?:ing|e)|starting up|init_process_group|rendezvous|spawning)\b",
}
_OVER = re.compile(
    r"\b(?:saved|wrote|written|loaded|restored|uploaded|finished|done|complete[d]?|took|succeeded|ready|evaluated"
    r"|validated|compiled|downloaded)\b",
    re.IGNORECASE,
)
_RUNS = {
    "compile": r"(?:^|/)torch/_(?:dynamo|inductor|functorch)/|(?:^|/)triton/|torch/utils/cpp_extension",
    "checkpoint": r"torch/distributed/checkpoint/|torch/serialization\.py|safetensors/",
}
_NAMED = {
    "evaluation": r"^_?(?:eval\w*|validat\w*|test_(?:step|loop|epoch)|run_(?:eval|validation)\w*)$",
    "checkpoint": (r"^_?(?:save|load|restore|write)_?(?:\w+_)?(?:checkpoint|ckpt|state|snapshot|model)\w*$"),
    "data": r"^_?(?:download|tokenize|preprocess|prepare_data)\w*$",
}
_SAYS = {name: re.compile(form, re.IGNORECASE) for name, form in _SAID.items()}
_FILES = {name: re.compile(form) for name, form in _RUNS.items()}
_FUNCTIONS = {name: re.compile(form) for name, form in _NAMED.items()}
MOST = 300


def said(line: str) -> str:
    """The phase that a line announces; empty where it names none, or its end."""
    text = line[-MOST:] if "\r" in line else line[:MOST]
    if _OVER.search(text):
        return ""
    return next((name for name, form in _SAYS.items() if form.search(text)), "")


def runs(frames: Iterable[tuple[str, int, str]]) -> str:
    """The phase that a stack stands in."""
    found = list(frames)
    for name, form in _FILES.items():
        if any(form.search(file.replace("\\", "/")) for file, _, _ in found):
            return name
    for name, form in _FUNCTIONS.items():
        if any(form.match(function.rsplit(".", 1)[-1]) for _, _, function in found):
            return name
    return ""
