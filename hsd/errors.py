"""Errors meant for the user: each message says what happened and what to do next."""


class HsdError(Exception):
    """Base of every error a user can cause or meet; `str(error)` is one or two plain sentences."""


class BadInput(HsdError):
    """A setting, a prompt, a threshold or a file that cannot be used as given."""


class ModelUnavailable(HsdError):
    """A model that cannot be found, fetched or loaded here."""


class NotEnoughMemory(ModelUnavailable):
    """A model for whose weights a device has no room."""


class IncompatibleModel(HsdError):
    """A model that loads but cannot serve in this hierarchy (vocabulary, cache, context)."""


class DeviceUnsupported(HsdError):
    """A device or kernel that is not there."""


class LevelFault(HsdError):
    """A forward pass that failed or gave numbers that are not finite."""


class Cancelled(HsdError):
    """The user asked to stop; what was complete is kept."""
