"""`supervise completion`: a script for a shell, which asks us again whenever somebody presses Tab."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from supervise.cli.app import app


class Shell(StrEnum):
    """Whose script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# bash takes words apart at = : and @ (bash(1), COMP_WORDBREAKS) and exchanges the last part only.
_BASH = r"""# supervise for bash: eval "$(supervise completion bash)" in ~/.bashrc
_supervise() {
    local words=() line=${COMP_LINE#*"${COMP_WORDS[0]}"} rest piece i
    for ((i = 1; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:space:]]*}"}
        if [[ $i -gt 1 && -n $piece && $rest == "$line" ]]; then words[-1]+=$piece; else words+=("$piece"); fi
        line=${rest#"$piece"}
    done
    local typed=${words[-1]} last=${COMP_WORDS[COMP_CWORD]} answer kind candidate
    if [[ $last == [=:@] ]]; then last=; fi
    local kept=${typed%"$last"}
    mapfile -t answer < <("${COMP_WORDS[0]/#\~/$HOME}" completion bash "${words[@]}" 2>/dev/null)
    kind=${answer[0]}
    COMPREPLY=()
    for candidate in "${answer[@]:1}"; do
        candidate=${candidate%%$'\t'*}
        COMPREPLY+=("${candidate#"$kept"}")
    done
    case $kind in
        commands) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$last") ;;
        words) ;;
        *) compopt -o default 2>/dev/null ;;
    esac
}
complete -F _supervise supervise"""

_ZSH = r"""#compdef supervise
# supervise for zsh: a file _supervise in a directory of $fpath, or eval "$(supervise completion zsh)" after compinit
_supervise() {
    local -a answer described
    local line
    answer=("${(@f)$(${~words[1]} completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${(@)answer[2,-1]}"; do
        described+=("${${line%%$'\t'*}//:/\\:}:${${(M)line%$'\t'*}#$'\t'}")
    done
    if (( ${#described} )); then _describe -t words supervise described; fi
    case ${answer[1]} in
        commands) _command_names -e ;;
        words) ;;
        *) [[ $PREFIX == --*=* ]] && compset -P '*='; _files ;;
    esac
}
if [[ $funcstack[1] == _supervise ]]; then _supervise "$@"; else compdef _supervise supervise; fi"""

_FISH = r"""# supervise for fish: supervise completion fish > ~/.config/fish/completions/supervise.fish
function __supervise_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l answer (command $words[1] completion fish $words[2..-1] "$typed" 2>/dev/null)
    for line in $answer[2..-1]
        echo $line
    end
    switch "$answer[1]"
        case commands
            __fish_complete_command
        case words
        case '*'
            __fish_complete_path $typed
    end
end
complete -c supervise -f -a '(__supervise_complete)'"""

_SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


def completion(
    shell: Shell,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="What its script asks: the words up to the cursor.")
    ] = None,
) -> None:
    """A completion script for your shell, on standard output: `eval "$(supervise completion bash)"`."""
    if words is None:
        typer.echo(_SCRIPTS[shell])
        return
    from supervise.cli.candidates import Known, answer

    found = answer(typer.main.get_command(app), words, Known(_runs, _profiles, _hosts))
    typer.echo(found.kind.value)
    for word, told in found.candidates:
        typer.echo(f"{word}\t{told}" if told else word)


def _runs(live: bool) -> list[str]:
    from supervise.verbs.select import is_live, store

    return [run.name for run in store().runs() if not live or is_live(run)]


def _profiles() -> list[str]:
    from supervise.profiles.load import names

    return sorted(names())


def _hosts() -> list[str]:
    from supervise.host.ssh_hosts import names

    return names()
