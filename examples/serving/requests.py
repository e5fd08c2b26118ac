"""Reads the rows of a request, and says what is wrong with it."""

import json


class Refused(Exception):
    """A request that is refused: the HTTP status and the message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def read_rows(body, names, max_rows, max_length):
    """Reads the rows of a request.

    Args:
        body: the bytes of the request.
        names: the names of the inputs.
        max_rows: the largest number of rows.
        max_length: the largest number of letters in a text.

    Returns:
        The rows, and whether the request gives them by columns.

    Raises:
        Refused: the message says what was given and what was expected.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    example = json.dumps({"instances": [dict.fromkeys(names, "text")]})
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        message = f'expected an object with either "instances" or "inputs", like {example}'
        raise Refused(400, message)
    unknown = set(request) - {"instances", "inputs", "signature_name"}
    if unknown:
        raise Refused(400, f"unknown fields: {', '.join(sorted(unknown))[:200]}")
    if request.get("signature_name", "") not in ("", "serving_default"):
        raise Refused(400, 'the only signature_name is "serving_default"')
    by_columns = "inputs" in request
    rows = _from_columns(request["inputs"], names) if by_columns else request["instances"]
    if not isinstance(rows, list) or not rows:
        raise Refused(400, f"expected a list of at least one instance, like {example}")
    if len(rows) > max_rows:
        raise Refused(413, f"{len(rows)} instances; at most {max_rows} in a request")
    return [_read_row(row, n, names, max_length) for n, row in enumerate(rows)], by_columns


def _from_columns(columns, names):
    if len(names) == 1 and isinstance(columns, list):
        columns = {names[0]: columns}
    if not isinstance(columns, dict) or sorted(columns) != names:
        raise Refused(400, f'"inputs" must be an object with a list for each of: {names}')
    sizes = {name: len(x) if isinstance(x, list) else None for name, x in columns.items()}
    if None in sizes.values() or len(set(sizes.values())) != 1:
        raise Refused(400, f'"inputs" must be lists of the same length; received {sizes}')
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _read_row(row, number, names, max_length):
    if isinstance(row, str) and len(names) == 1:
        row = {names[0]: row}
    if not isinstance(row, dict) or sorted(row) != names:
        either = "a string, or " if len(names) == 1 else ""
        message = f"instance {number}: expected {either}an object with a string for: {names}"
        raise Refused(400, message)
    for name, text in row.items():
        if not isinstance(text, str):
            kind = type(text).__name__
            raise Refused(400, f"instance {number}: {name} must be a string; received {kind}")
        if len(text) > max_length:
            message = f"instance {number}: {name} has {len(text)} letters; at most {max_length}"
            raise Refused(413, message)
        try:
            text.encode()
        except UnicodeEncodeError:
            message = f"instance {number}: {name} has half of a surrogate pair"
            raise Refused(400, message) from None
    return row
