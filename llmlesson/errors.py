"""The one exception that the package raises for people to read."""


class LessonError(ValueError):
    """Something the user can mend. The message says what happened and what to do about it.

    Raised before any state changes: a cache, a file or a download is as it was.
    """
