"""Adapters for game libraries: `openspiel:NAME`, `pettingzoo:NAME`, `textarena:NAME`.

Each library has one adapter and one optional extra. A library is imported only when one of its
games is created.
"""
