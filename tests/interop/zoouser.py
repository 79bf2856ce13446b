"""Classes of a user, under the names that the fixtures' client states were pickled with."""


class TrainerState:
    """Attributes in __dict__: NEWOBJ, then a dict by BUILD."""

    def __init__(self, epoch, best, history):
        self.epoch, self.best, self.history = epoch, best, history


class Slotted:
    """Attributes in slots: BUILD takes a pair (None, dict)."""

    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b
