"""Functions of a live job in Python."""

from jobs.letters import capitals


def tidy(text):
    if text is not None and "#" in text:
        raise ValueError(f"no sign in {text}")
    return "NONE" if text is None else capitals(text.strip())


class Top:
    """The two largest values."""

    def zero(self):
        return []

    def add(self, largest, value):
        return sorted([*largest, value], reverse=True)[:2]

    def result(self, largest):
        return largest


def path(records):
    return "".join(f">{one.v}" for one in records)


class Fragile(Top):
    def add(self, largest, value):
        if value > 50:
            raise ValueError(f"too much: {value}")
        return super().add(largest, value)


class Half:
    def zero(self):
        return 0
