"""Games of other libraries, by name: `openspiel:NAME`, `pettingzoo:NAME`, `textarena:NAME`.

One adapter for each library, an extra of the package for each, and no import of any of them before
one of its games is asked for.
"""
