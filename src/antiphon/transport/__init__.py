"""How frames travel: HTTP, standard streams, memory; each for the serving and for the calling side."""
