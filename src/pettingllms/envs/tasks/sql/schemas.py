"""Four small databases, filled at random from a seed.

The same schema with another seed has other rows under the same names. A correct query is correct on
both; a query that spells out the rows it saw is not.
"""

import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Rows = list[tuple[Any, ...]]
CITIES = ("Arden", "Brel", "Corva", "Dunmore", "Eskil")
FIRST = ("Ada", "Bruno", "Clara", "Deniz", "Elif", "Femi", "Greta", "Hugo", "Iris", "Jonas")
LAST = ("Abel", "Brandt", "Costa", "Dahl", "Ekman", "Faria", "Grau", "Holm")
KINDS = ("lamp", "chair", "table", "shelf", "mirror")
COLORS = ("red", "blue", "green", "white")
GENRES = ("novel", "poetry", "history", "science")
SUBJECTS = ("Algebra", "Biology", "Chemistry", "Drawing", "Economics", "French")
AIRLINES = ("Alba", "Boreal", "Cirrus", "Delta Sur")


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a database, and the function that fills them."""

    tables: Mapping[str, str]
    """Column definitions by name."""
    fill: Callable[[random.Random], Mapping[str, Rows]]


def _people(rng: random.Random, count: int) -> list[str]:
    return rng.sample([f"{first} {last}" for first in FIRST for last in LAST], count)


def _day(rng: random.Random) -> str:
    return f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _shop(rng: random.Random) -> Mapping[str, Rows]:
    names = rng.sample([f"{color} {kind}" for color in COLORS for kind in KINDS], 12)
    people = enumerate(_people(rng, 15), 1)
    return {
        "customers": [(at, name, rng.choice(CITIES)) for at, name in people],
        "products": [
            (at, name, name.split()[1], rng.randint(5, 90) + 0.5)
            for at, name in enumerate(names, 1)
        ],
        "orders": [
            (at, rng.randint(1, 13), rng.randint(1, 12), rng.randint(1, 5), _day(rng))
            for at in range(1, 41)
        ],
    }


def _library(rng: random.Random) -> Mapping[str, Rows]:
    people = _people(rng, 20)
    nouns, verbs = (
        ("River", "Clock", "Garden", "Winter", "Letter"),
        ("Lost", "Quiet", "Last", "Blue"),
    )
    titles = rng.sample([f"The {verb} {noun}" for verb in verbs for noun in nouns], 18)
    return {
        "authors": [(at, people[at - 1], rng.randint(1900, 1990)) for at in range(1, 9)],
        "books": [
            (at, title, rng.randint(1, 7), rng.choice(GENRES), rng.randint(90, 700))
            for at, title in enumerate(titles, 1)
        ],
        "members": [(at, people[at + 7], rng.choice(CITIES)) for at in range(1, 13)],
        "loans": [
            (at, rng.randint(1, 18), rng.randint(1, 11), _day(rng), rng.choice((0, 1)))
            for at in range(1, 36)
        ],
    }


def _flights(rng: random.Random) -> Mapping[str, Rows]:
    def flight(at: int) -> tuple[Any, ...]:
        start, end = rng.sample(range(1, 6), 2)
        return at, rng.randint(1, 4), start, end, rng.randint(40, 400), rng.randint(30, 240)

    return {
        "airports": [(at, city, rng.randint(1, 5)) for at, city in enumerate(CITIES, 1)],
        "airlines": [(at, name, rng.randint(1950, 2010)) for at, name in enumerate(AIRLINES, 1)],
        "flights": [flight(at) for at in range(1, 41)],
    }


def _school(rng: random.Random) -> Mapping[str, Rows]:
    people = _people(rng, 20)
    pairs = rng.sample([(one, other) for one in range(1, 15) for other in range(1, 7)], 45)
    return {
        "teachers": [(at, people[at - 1]) for at in range(1, 5)],
        "courses": [(at, name, rng.randint(1, 4)) for at, name in enumerate(SUBJECTS, 1)],
        "students": [(at, people[at + 3], rng.randint(1, 4)) for at in range(1, 16)],
        "enrolments": [(one, other, rng.randint(40, 100)) for one, other in pairs],
    }


SCHEMAS: Mapping[str, Schema] = {
    "shop": Schema(
        {
            "customers": "id INTEGER PRIMARY KEY, name TEXT, city TEXT",
            "products": "id INTEGER PRIMARY KEY, name TEXT, kind TEXT, price REAL",
            "orders": "id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers(id), "
            "product_id INTEGER REFERENCES products(id), quantity INTEGER, day TEXT",
        },
        _shop,
    ),
    "library": Schema(
        {
            "authors": "id INTEGER PRIMARY KEY, name TEXT, born INTEGER",
            "books": "id INTEGER PRIMARY KEY, title TEXT, "
            "author_id INTEGER REFERENCES authors(id), genre TEXT, pages INTEGER",
            "members": "id INTEGER PRIMARY KEY, name TEXT, city TEXT",
            "loans": "id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES books(id), "
            "member_id INTEGER REFERENCES members(id), day TEXT, returned INTEGER",
        },
        _library,
    ),
    "flights": Schema(
        {
            "airports": "id INTEGER PRIMARY KEY, city TEXT, runways INTEGER",
            "airlines": "id INTEGER PRIMARY KEY, name TEXT, founded INTEGER",
            "flights": "id INTEGER PRIMARY KEY, airline_id INTEGER REFERENCES airlines(id), "
            "from_id INTEGER REFERENCES airports(id), to_id INTEGER REFERENCES airports(id), "
            "price INTEGER, minutes INTEGER",
        },
        _flights,
    ),
    "school": Schema(
        {
            "teachers": "id INTEGER PRIMARY KEY, name TEXT",
            "courses": "id INTEGER PRIMARY KEY, name TEXT, "
            "teacher_id INTEGER REFERENCES teachers(id)",
            "students": "id INTEGER PRIMARY KEY, name TEXT, year INTEGER",
            "enrolments": "student_id INTEGER REFERENCES students(id), "
            "course_id INTEGER REFERENCES courses(id), grade INTEGER",
        },
        _school,
    ),
}


@lru_cache(maxsize=4096)
def make_database(schema: str, seed: int) -> bytes:
    """A database as a SQLite file. The same name and seed give the same bytes."""
    world, connection = SCHEMAS[schema], sqlite3.connect(":memory:")
    for table, rows in world.fill(random.Random(seed)).items():
        connection.execute(f"CREATE TABLE {table} ({world.tables[table]})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
    connection.commit()
    file = connection.serialize()
    connection.close()
    return file
