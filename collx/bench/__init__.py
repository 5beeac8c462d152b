"""`python -m collx.bench`: validate collx's algorithms and time them beside the MPI's own.

One process per rank does everything: it validates every algorithm, times the native collective and
the algorithms interleaved, repetition by repetition, and prints one table. The modules, from the
inside out: `meeting` (how ranks agree), `places` (where collectives run), `contents` and `sides`
(what ranks have, and what must come out), `problems` (buffers), `candidates` (what there is to
run), `validation`, `timing`, `report`, `options`.
"""
