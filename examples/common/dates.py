"""Written dates and their ISO form: "the third of May, 1998" -> "1998-05-03".

An endless supply of pairs. The order of the parts changes, so a translator must look at the right
place of the source.
"""

import calendar
import datetime
import random

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
DAYS = (LAST - FIRST).days + 1
MONTHS, WEEKDAYS = list(calendar.month_name)[1:], list(calendar.day_name)
UNITS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
TEENS = ["tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"]
TEENS += ["seventeenth", "eighteenth", "nineteenth"]
ORDINALS = [*UNITS, *TEENS, "twentieth", *(f"twenty-{unit}" for unit in UNITS)]
ORDINALS += ["thirtieth", "thirty-first"]
FORMATS = "{day} {month} {year}", "{month} {day}, {year}", "{nth} of {month} {year}"
FORMATS += "{month} {nth}, {year}", "{weekday}, {day} {month} {year}"
FORMATS += "{weekday}, {month} {nth} {year}", "the {ordinal} of {month}, {year}"
FORMATS += "{month} the {ordinal} {year}", "{year}, {month} {day}", "{day} {short} {year}"
FORMATS += "{short} {day} {year}", "{day}. {month} {year}", "{day}.{number}.{year}"
FORMATS += "{day:02d}/{number:02d}/{year}", "in {year} on the {nth} of {month}"


def write(date, pattern):
    """Writes a `datetime.date` in one of the `FORMATS`."""
    day, month = date.day, MONTHS[date.month - 1]
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    names = {"day": day, "month": month, "short": month[:3], "number": date.month}
    names |= {"nth": f"{day}{suffix}", "ordinal": ORDINALS[day - 1], "year": date.year}
    names |= {"yy": f"{date:%y}" if 1969 <= date.year <= 2068 else date.year}
    return pattern.format(**names, weekday=WEEKDAYS[date.weekday()])


def make_pairs(sizes, seed=0, formats=FORMATS):
    """Makes disjoint sets of pairs, `(sources, targets)` for each size: no day is in two of them.

    The same seed gives the same pairs.
    """
    rng = random.Random(seed)
    days = rng.sample(range(DAYS), sum(sizes))
    dates = iter(FIRST + datetime.timedelta(days=day) for day in days)
    sets = []
    for size in sizes:
        chosen = [next(dates) for _ in range(size)]
        sources = [_vary(write(date, rng.choice(formats)), rng) for date in chosen]
        sets.append((sources, [date.isoformat() for date in chosen]))
    return sets


def _vary(text, rng):
    return rng.choice((text, text, text.lower(), text.upper()))
