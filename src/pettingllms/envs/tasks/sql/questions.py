"""Questions about the four databases, each with its reference query.

Level 1 reads one table, level 2 joins or groups, level 3 does both or asks for missing rows. Each
question states the columns of the answer, because their order counts.
"""

import random
import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pettingllms.envs.tasks.sql import schemas
from pettingllms.seeds import derive_seed

Level = Literal[1, 2, 3]
ATTEMPTS = 64
SLOTS = {
    "city": schemas.CITIES,
    "other": schemas.CITIES,
    "kind": schemas.KINDS,
    "genre": schemas.GENRES,
    "airline": schemas.AIRLINES,
    "subject": schemas.SUBJECTS,
    "month": tuple(f"{month:02d}" for month in range(1, 13)),
    "price": tuple(map(str, range(10, 80, 5))),
    "fare": tuple(map(str, range(80, 360, 20))),
    "pages": tuple(map(str, range(150, 600, 50))),
    "grade": tuple(map(str, range(50, 96, 3))),
    "year": ("1", "2", "3", "4"),
    "count": ("2", "3"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A question with slots, and its query with the same slots."""

    schema: str
    level: Level
    text: str
    sql: str
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its database and the reference query. Roles see only the text."""

    text: str
    sql: str
    ordered: bool
    database: bytes
    twin: bytes | None = None
    """The same schema with other rows, which no role sees: a correct query is correct here too."""


TEMPLATES = (
    Template("shop", 1, "How many products of the kind '{kind}' cost more than {price}? "
        "Give the number.",
        "SELECT COUNT(*) FROM products WHERE kind = '{kind}' AND price > {price}"),
    Template("shop", 1, "Which customers live in {city}? Give their names, from A to Z.",
        "SELECT name FROM customers WHERE city = '{city}' ORDER BY name", True),
    Template("shop", 2, "How many orders did each customer in {city} make? Give name and number; "
        "leave out those without an order.",
        "SELECT c.name, COUNT(*) FROM customers c JOIN orders o ON o.customer_id = c.id "
        "WHERE c.city = '{city}' GROUP BY c.id"),
    Template("shop", 2, "What did all orders of the month 2024-{month} come to, price times "
        "quantity? "
        "Give the sum.",
        "SELECT SUM(p.price * o.quantity) FROM orders o JOIN products p ON p.id = o.product_id "
        "WHERE o.day LIKE '2024-{month}-%'"),
    Template("shop", 3, "Which products of more than {price} did nobody in {city} ever order? "
        "Give their names.",
        "SELECT name FROM products WHERE price > {price} AND id NOT IN (SELECT o.product_id "
        "FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.city = '{city}')"),
    Template("shop", 3, "For each city, how much was spent there on products of the kind '{kind}', "
        "price times quantity? Give city and sum, by city from A to Z; leave out cities without.",
        "SELECT c.city, SUM(p.price * o.quantity) FROM customers c "
        "JOIN orders o ON o.customer_id = c.id JOIN products p ON p.id = o.product_id "
        "WHERE p.kind = '{kind}' GROUP BY c.city ORDER BY c.city", True),
    Template("library", 1, "Which books of the genre '{genre}' have more than {pages} pages? "
        "Give their titles.",
        "SELECT title FROM books WHERE genre = '{genre}' AND pages > {pages}"),
    Template("library", 1, "How many members live in {city}? Give the number.",
        "SELECT COUNT(*) FROM members WHERE city = '{city}'"),
    Template("library", 2, "Who wrote books of the genre '{genre}'? Give each author's name once.",
        "SELECT DISTINCT a.name FROM authors a JOIN books b ON b.author_id = a.id "
        "WHERE b.genre = '{genre}'"),
    Template("library", 2, "What is the average number of pages of each genre, of books with more "
        "than {pages} pages? Give genre and average.",
        "SELECT genre, AVG(pages) FROM books WHERE pages > {pages} GROUP BY genre"),
    Template("library", 3, "Which members in {city} have at least {count} loans that are not "
        "returned? "
        "Give name and number of such loans.",
        "SELECT m.name, COUNT(*) FROM members m JOIN loans l ON l.member_id = m.id "
        "WHERE m.city = '{city}' AND l.returned = 0 GROUP BY m.id HAVING COUNT(*) >= {count}"),
    Template("library", 3, "Which books of the genre '{genre}' were never lent? Give their titles.",
        "SELECT title FROM books WHERE genre = '{genre}' "
        "AND id NOT IN (SELECT book_id FROM loans)"),
    Template("flights", 1, "How many flights cost less than {fare}? Give the number.",
        "SELECT COUNT(*) FROM flights WHERE price < {fare}"),
    Template("flights", 1, "Which flights cost more than {fare}? Give their ids, the dearest "
        "first and "
        "the lower id first where prices are equal.",
        "SELECT id FROM flights WHERE price > {fare} ORDER BY price DESC, id", True),
    Template("flights", 2, "How many flights leave {city} with each airline? Give the airline's "
        "name "
        "and the number; leave out airlines without one.",
        "SELECT a.name, COUNT(*) FROM flights f JOIN airlines a ON a.id = f.airline_id "
        "JOIN airports s ON s.id = f.from_id WHERE s.city = '{city}' GROUP BY a.id"),
    Template("flights", 2, "What does the cheapest flight from {city} to {other} cost? Give the "
        "price.",
        "SELECT MIN(f.price) FROM flights f JOIN airports s ON s.id = f.from_id "
        "JOIN airports e ON e.id = f.to_id WHERE s.city = '{city}' AND e.city = '{other}'"),
    Template("flights", 3, "To which cities does {airline} fly for less than {fare}, and what "
        "is the "
        "lowest price? Give city and price, by city from A to Z.",
        "SELECT e.city, MIN(f.price) FROM flights f JOIN airlines a ON a.id = f.airline_id "
        "JOIN airports e ON e.id = f.to_id WHERE a.name = '{airline}' AND f.price < {fare} "
        "GROUP BY e.city ORDER BY e.city", True),
    Template("flights", 3, "Which airlines have no flight to {city}? Give their names.",
        "SELECT name FROM airlines WHERE id NOT IN (SELECT f.airline_id FROM flights f "
        "JOIN airports e ON e.id = f.to_id WHERE e.city = '{city}')"),
    Template("school", 1, "Which students are in year {year}? Give their names.",
        "SELECT name FROM students WHERE year = {year}"),
    Template("school", 1, "How many grades are above {grade}? Give the number.",
        "SELECT COUNT(*) FROM enrolments WHERE grade > {grade}"),
    Template("school", 2, "Who takes {subject}, with which grade? Give name and grade, the best "
        "grade "
        "first and names from A to Z where grades are equal.",
        "SELECT s.name, e.grade FROM students s JOIN enrolments e ON e.student_id = s.id "
        "JOIN courses c ON c.id = e.course_id WHERE c.name = '{subject}' "
        "ORDER BY e.grade DESC, s.name", True),
    Template("school", 2, "What is the average grade in each course of students in year {year}? "
        "Give course name and average; leave out courses without such students.",
        "SELECT c.name, AVG(e.grade) FROM courses c JOIN enrolments e ON e.course_id = c.id "
        "JOIN students s ON s.id = e.student_id WHERE s.year = {year} GROUP BY c.id"),
    Template("school", 3, "Which teachers gave somebody in year {year} a grade above {grade}? Give "
        "each name once.",
        "SELECT DISTINCT t.name FROM teachers t JOIN courses c ON c.teacher_id = t.id "
        "JOIN enrolments e ON e.course_id = c.id JOIN students s ON s.id = e.student_id "
        "WHERE s.year = {year} AND e.grade > {grade}"),
    Template("school", 3, "Which students do not take {subject} but at least {count} other "
        "courses? "
        "Give name and number of courses.",
        "SELECT s.name, COUNT(*) FROM students s JOIN enrolments e ON e.student_id = s.id "
        "WHERE s.id NOT IN (SELECT e2.student_id FROM enrolments e2 JOIN courses c "
        "ON c.id = e2.course_id WHERE c.name = '{subject}') "
        "GROUP BY s.id HAVING COUNT(*) >= {count}"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def make_question(seed: int, max_level: int) -> Question:
    """The question of a seed. Even and odd seeds never share a question. The answer is not empty
    and differs on the twin."""
    for attempt in range(ATTEMPTS):
        rng = random.Random(derive_seed("sql", seed, attempt))
        template = rng.choice([one for one in TEMPLATES if one.level <= max_level])
        slots = {name: rng.choice(values) for name, values in SLOTS.items()}
        slots["other"] = rng.choice([city for city in schemas.CITIES if city != slots["city"]])
        text, sql = template.text.format(**slots), template.sql.format(**slots)
        one, two = (schemas.make_database(template.schema, rng.getrandbits(62)) for _ in "ab")
        answer = _answer(one, sql)
        if (
            derive_seed(text) % 2 == seed % 2
            and _is_informative(answer)
            and answer != _answer(two, sql)
        ):
            break
    return Question(text, sql, template.ordered, one, two)


def _answer(database: bytes, sql: str) -> list[tuple[object, ...]]:
    """The result of the reference query."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(database)
    rows: list[tuple[object, ...]] = connection.execute(sql).fetchall()
    connection.close()
    return rows


def _is_informative(rows: list[tuple[object, ...]]) -> bool:
    return bool(rows) and rows[0] not in [(0,), (None,)]
