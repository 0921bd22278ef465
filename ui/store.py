"""Results on the server, bounded, each under an id that cannot be guessed; a page holds only ids.

Whoever has an id can fetch its result, so a visitor whose connection broke gets it back by its id; a page that is loaded anew shows
what it showed before (ui/reload.py).
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import TypeVar

Kind = TypeVar("Kind")

CAPACITY = 256


class Store:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._items: OrderedDict[str, object] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, item: object, key: str | None = None) -> str:
        """Keep `item` (under `key` if given, else under a new id); the least recently used ones make room."""
        key = key or secrets.token_urlsafe(9)
        with self._lock:
            self._items[key] = item
            self._items.move_to_end(key)
            while len(self._items) > self._capacity:
                self._items.popitem(last=False)
        return key

    def get(self, key: str | None, kind: type[Kind]) -> Kind | None:
        """The item of that id if it is of that kind; `None` for an unknown or forgotten id."""
        with self._lock:
            item = self._items.get(key) if key else None
            if isinstance(item, kind):
                self._items.move_to_end(key)
                return item
        return None
