"""Why a request is not answered."""


class Refused(Exception):
    """A request that is refused: the HTTP status and the message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
