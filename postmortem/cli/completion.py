"""The command line -> what makes bash, zsh or fish complete it at TAB.

script("bash", commands.read(app), {"PATTERN": ["nccl-error", …], "SCENARIO": […]})

All that can be completed stands in the script itself, names of patterns too, so that a TAB starts no Python:
on a login node with a slow file system that alone takes longer than typing the word. What a value is, its
metavar says: FILE, PATH and REPORT are files, DIR is a folder, PATTERN and SCENARIO are names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from postmortem.cli.declarations import Command, Parameter, walk
from postmortem.cli.overview import OPTIONS

Names = Mapping[str, Sequence[str]]
FILES, FOLDERS = frozenset({"FILE", "PATH", "REPORT"}), frozenset({"DIR"})
LINE = 100


def script(shell: str, root: Command, names: Names) -> str:
    """What a shell reads to complete the commands below `root`."""
    lines = SHELLS[shell](root, names)
    how = f"# Written by `postmortem completion {shell}`; write it again after an upgrade."
    head = ["#compdef postmortem", how] if shell == "zsh" else [how]  # compinit reads the first line
    return "\n".join([*head, "", *lines])


def _below(root: Command) -> Iterator[tuple[str, Command]]:
    """Every command by its words, with "" for `postmortem` alone."""
    return ((" ".join(path), command) for path, command in walk(root))


def _options(path: str, command: Command) -> tuple[Parameter, ...]:
    if not path:
        return tuple(Parameter((name,), "", does) for name, does in OPTIONS.items())
    return command.options


def _named(parameter: Parameter, names: Names) -> str:
    """PATTERN or SCENARIO, where its values are names that are known."""
    return next((kind for kind in names if kind in parameter.takes), "")


# ── bash ────────────────────────────────────────────────────────────────────────────────────────────────────

BASH = r"""
_postmortem() {
  local path= i=1 words= options= kind=
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  if [[ $current == = ]]; then # --format=js is three words to bash
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  while ((i < COMP_CWORD)); do
    case "$path ${COMP_WORDS[i]}" in
      @COMMANDS@) path="${path:+$path }${COMP_WORDS[i]}" ;;
      *) break ;;
    esac
    ((i += 1))
  done
  case "$path" in
@PATHS@
  esac
  if [[ $current == -* ]]; then
    words=$options kind=words
  else
    case "$path $before" in
@VALUES@
    esac
  fi
  COMPREPLY=()
  case $kind in
    files) return ;; # readline completes files
    folders) compopt -o dirnames +o default +o bashdefault 2>/dev/null ;;
    *) compopt +o default +o bashdefault 2>/dev/null ;;
  esac
  case $kind in
    PATTERN) words=$_postmortem_PATTERN ;;
    SCENARIO) words=$_postmortem_SCENARIO; compopt -o default 2>/dev/null ;; # or a report
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o bashdefault -o default -F _postmortem postmortem
"""


def _bash(root: Command, names: Names) -> Iterator[str]:
    for kind, words in names.items():
        yield from (f"_postmortem_{kind}='", *_wrapped(words), "'")
    paths, values = [], []
    for path, command in _below(root):
        options = " ".join(name for option in _options(path, command) for name in option.names)
        words = " ".join(c.name for c in command.commands)
        kind = "words"
        for argument in command.arguments:
            words, kind = " ".join(argument.choices), _kind(argument, names)
        paths.append(f"    '{path}') options='{options}' words='{words}' kind={kind} ;;")
        for option in command.options:
            if option.metavar:
                asked = "|".join(f"'{path} {name}'" for name in option.names)
                choices = " ".join(option.choices)
                values.append(f"      {asked}) words='{choices}' kind={_kind(option, names)} ;;")
    parents = [path.rpartition(" ") for path, _ in _below(root) if path]
    known = "|".join(f"'{parent} {name}'" for parent, _, name in parents)
    text = BASH.strip().replace("@COMMANDS@", known)
    yield from text.replace("@PATHS@", "\n".join(paths)).replace("@VALUES@", "\n".join(values)).splitlines()


def _kind(parameter: Parameter, names: Names) -> str:
    if named := _named(parameter, names):
        return named
    if parameter.takes & FILES:
        return "files"
    return "folders" if parameter.takes & FOLDERS else "words"


def _wrapped(words: Sequence[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) >= LINE:
            yield line
            line = ""
        line += f" {word}" if line else word
    yield line


# ── zsh ─────────────────────────────────────────────────────────────────────────────────────────────────────

ZSH_END = """
if [[ ${funcstack[1]} == _postmortem ]]; then # loaded at the first TAB, by compinit
  _postmortem "$@"
else
  compdef _postmortem postmortem
fi
"""


def _zsh(root: Command, names: Names) -> Iterator[str]:
    for kind, words in names.items():
        yield from (f"_postmortem_{kind}() {{", "  local -a names", "  names=(", *_wrapped(words), "  )")
        yield from (f"  _describe {kind.lower()} names", "}")
    for path, command in reversed([*_below(root)]):
        yield from _zsh_function("_".join(("_postmortem", *path.split())), path, command, names)
    yield from ZSH_END.strip().splitlines()


def _zsh_function(name: str, path: str, command: Command, names: Names) -> Iterator[str]:
    yield from (
        f"{name}() {{",
        "  local curcontext=$curcontext state state_descr line",
        "  typeset -A opt_args",
    )
    specs = [_zsh_option(option, names) for option in _options(path, command)]
    if command.commands:
        specs += ["'1: :->command'", "'*:: :->rest'"]
    for argument in command.arguments:
        many = "*" if argument.repeatable else "1"
        specs.append(f"'{many}:{_zsh_text(argument.metavar)}:{_zsh_values(argument, names)}'")
    yield from ("  _arguments -C -s -S \\", *(f"    {spec} \\" for spec in specs[:-1]), f"    {specs[-1]}")
    if command.commands:
        inner = [f"      '{c.name}:{_zsh_text(c.help)}'" for c in command.commands]
        yield from ("  case $state in", "  command)", "    local -a inner", "    inner=(", *inner, "    )")
        yield from ("    _describe command inner ;;", "  rest)", "    case $words[1] in")
        yield from (f"    {c.name}) {name}_{c.name} ;;" for c in command.commands)
        yield from ("    esac ;;", "  esac")
    yield "}"


def _zsh_option(option: Parameter, names: Names) -> str:
    value = f":{_zsh_text(option.metavar)}:{_zsh_values(option, names)}" if option.metavar else ""
    told = f"[{_zsh_text(option.help)}]{value}"
    again = "*" if option.repeatable else f"({' '.join(option.names)})"
    spelled = [name + ("" if not value else "=" if name.startswith("--") else "+") for name in option.names]
    which = spelled[0] if len(spelled) == 1 else "{" + ",".join(spelled) + "}"
    return f"'{again}'{which}'{told}'"


def _zsh_values(parameter: Parameter, names: Names) -> str:
    if parameter.choices:
        return f"({' '.join(parameter.choices)})"
    found = [f"_postmortem_{named}"] if (named := _named(parameter, names)) else []
    if parameter.takes & FILES:
        found.append("_files")
    elif parameter.takes & FOLDERS:
        found.append("_files -/")
    if len(found) == 2:
        return '_alternative "names\\:name\\:{}" "files\\:file\\:{}"'.format(*found)
    return found[0] if found else " "


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


# ── fish ────────────────────────────────────────────────────────────────────────────────────────────────────

FISH = """
function __postmortem_at
    set -l path
    for word in (commandline -opc)[2..]
        switch "$path $word"
            case @COMMANDS@
                set path (string trim -- "$path $word")
            case '*'
                break
        end
    end
    test "$path" = "$argv[1]"
end
complete -c postmortem -f
"""


def _fish(root: Command, names: Names) -> Iterator[str]:
    for kind, words in names.items():
        yield from (f"function __postmortem_{kind}", "    string match -ar '\\S+' -- '")
        yield from (*_wrapped(words), "'", "end")
    parents = [path.rpartition(" ") for path, _ in _below(root) if path]
    known = " ".join(f"'{parent} {name}'" for parent, _, name in parents)
    yield from FISH.strip().replace("@COMMANDS@", known).splitlines()
    for path, command in _below(root):
        at = f"complete -c postmortem -n \"__postmortem_at '{path}'\""
        for inner in command.commands:
            yield f"{at} -a {inner.name} -d {_fish_text(inner.help)}"
        for argument in command.arguments:
            yield f"{at} {_fish_values(argument, names)}"
        for option in _options(path, command):
            spelled = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            values = f" -r {_fish_values(option, names)}" if option.metavar else ""
            yield f"{at} {spelled}{values} -d {_fish_text(option.help)}"


def _fish_values(parameter: Parameter, names: Names) -> str:
    if parameter.choices:
        return f"-f -a '{' '.join(parameter.choices)}'"
    if parameter.takes & FOLDERS:
        return "-f -a '(__fish_complete_directories)'"
    named = _named(parameter, names)
    files = "-F" if parameter.takes & FILES else "-f"
    return f"{files} -a '(__postmortem_{named})'" if named else files


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[Command, Names], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
