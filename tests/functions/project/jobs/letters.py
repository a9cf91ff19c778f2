"""What another module of the project uses."""


def capitals(text):
    return text.upper()
