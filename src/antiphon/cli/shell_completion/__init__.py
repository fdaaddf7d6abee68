"""Shell completion in bash, zsh and fish: commands, options, and names and values that a server offers.

A shell runs `antiphon` at each press of Tab, with the line so far in a variable of the environment. Nothing
is written to the terminal and nobody is prompted; if anything fails, there are no candidates.
"""
