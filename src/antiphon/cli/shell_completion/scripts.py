"""The scripts that `antiphon --install-completion` installs in a shell.

They pass the line as it is in a variable, and take one candidate a line. No script evaluates a candidate:
candidates come from servers, and typer's own scripts for zsh and bash would let a shell expand them.
"""

from __future__ import annotations

__all__ = ["LINE", "SHELL", "WORD_BREAKS", "use_these_scripts"]

SHELL = "_ANTIPHON_COMPLETE"
"""The variable with `complete_` and the name of the shell. typer reads it too."""
LINE = "_ANTIPHON_LINE"
"""The variable with the line up to the cursor."""
WORD_BREAKS = "_ANTIPHON_WORD_BREAKS"
"""The variable with the characters at which bash breaks words for completion."""

_BASH = """
%(complete_func)s() {
    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <(%(autocomplete_var)s=complete_bash _ANTIPHON_LINE="${COMP_LINE:0:$COMP_POINT}" \\
             _ANTIPHON_WORD_BREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == *[=/] ]]; then
        compopt -o nospace
    fi
    return 0
}

complete -o default -F %(complete_func)s %(prog_name)s
"""

_ZSH = """
#compdef %(prog_name)s

%(complete_func)s() {
  local -a lines values labels open open_labels
  local line value label
  lines=("${(@f)$(%(autocomplete_var)s=complete_zsh _ANTIPHON_LINE="${(j: :)words[1,CURRENT]}" \\
                  "${words[1]}" 2>/dev/null)}")
  for line in "${lines[@]}"; do
    [[ -n $line ]] || continue
    value=${line%%%%$'\\t'*}
    label=${line/$'\\t'/ -- }
    if [[ $value == *[=/] ]]; then
      open+=("$value"); open_labels+=("$label")
    else
      values+=("$value"); labels+=("$label")
    fi
  done
  if (( ${#values} + ${#open} == 0 )); then
    _files
    return
  fi
  (( ${#values} )) && compadd -l -d labels -a values
  (( ${#open} )) && compadd -l -S '' -d open_labels -a open
}

compdef %(complete_func)s %(prog_name)s
"""

_FISH = """
function %(complete_func)s
    set -l line (commandline -cp | string collect)
    set -l found (%(autocomplete_var)s=complete_fish _ANTIPHON_LINE=$line %(prog_name)s 2>/dev/null)
    if test (count $found) -gt 0
        printf '%%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command %(prog_name)s --no-files --keep-order --arguments '(%(complete_func)s)'
"""


def use_these_scripts() -> None:
    """Make typer's `--install-completion` and `--show-completion` use these scripts.

    The table of scripts is private to typer: without it, typer's own scripts are used, which complete
    commands and options.
    """
    try:
        from typer._completion_shared import _completion_scripts as scripts
    except ImportError:
        return
    scripts.update(bash=_BASH, zsh=_ZSH, fish=_FISH)
