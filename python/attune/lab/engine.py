"""The measuring engine: a session to which graphs are added, and that returns measurement and analysis."""

from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_char_p, c_void_p
from typing import Callable

from attune.c_api import load
from attune.lab.errors import LabError, NotHere, refusal
from attune.lab.structs import (
    ENGINE_FUNCTIONS,
    ENGINE_VERSION,
    ROLE_CONTENDER,
    ROLE_TWIN,
    Call,
    Capture,
    LabCall,
    LabGraph,
    Make,
)
from attune.lab.structs import Progress as ProgressFunction


class Engine:
    def __init__(self, path: str):
        try:
            self.library = load(path, ENGINE_FUNCTIONS)
        except (OSError, AttributeError) as error:
            raise NotHere(f"the measuring engine cannot be loaded: {error}") from error
        version = self.library.attune_lab_engine_version()
        if version != ENGINE_VERSION:
            raise NotHere(f"{path} has version {version} of the engine's interface; this host knows {ENGINE_VERSION}")

    def require(self, status: int) -> None:
        if status != 0:
            raise LabError(self.last_error())

    def last_error(self) -> str:
        return self.library.attune_lab_last_error().decode()


class Session:
    """Use as a context manager. `protocol`: the fields that differ from the defaults."""

    def __init__(self, engine: Engine, protocol: dict, device: int = 0):
        self._engine = engine
        self._library = engine.library
        self._session = c_void_p()
        self._kept = []  # what C points to
        self._error: BaseException | None = None
        text = json.dumps(protocol).encode()
        status = self._library.attune_lab_session_create(text, device, byref(self._session))
        if status != 0:
            raise refusal(status, engine.last_error())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self._library.attune_lab_session_destroy(self._session)
        self._session = c_void_p()

    def add(self, name: str, capture: Callable[[int, int], int], facts: dict | None = None, twin: bool = False) -> None:
        """`capture(calls, seed)` returns a CUgraphExec. The first one added is the baseline, `twin` its second copy."""

        def guarded(_user, calls, seed):
            try:
                return capture(calls, seed)
            except BaseException as error:  # nothing may fly through C
                self._error = error
                return None

        graph = LabGraph(
            struct_size=ctypes.sizeof(LabGraph),
            role=ROLE_TWIN if twin else ROLE_CONTENDER,
            name=name.encode(),
            facts_json=json.dumps(facts or {}).encode(),
            capture=Capture(guarded),
        )
        self._kept.append(graph)
        self._engine.require(self._library.attune_lab_add_graph(self._session, byref(graph)))

    def add_call(
        self,
        name: str,
        call: Callable[[], None],
        make: Callable[[int], None] = lambda seed: None,
        twin: bool = False,
    ) -> None:
        """A function on this thread, timed by the wall clock; `make(seed)` makes its data."""

        def guarded(function, *arguments):
            if self._error is None:
                try:
                    function(*arguments)
                except BaseException as error:  # nothing may fly through C; run() raises it
                    self._error = error

        given = LabCall(
            struct_size=ctypes.sizeof(LabCall),
            role=ROLE_TWIN if twin else ROLE_CONTENDER,
            name=name.encode(),
            call=Call(lambda _user: guarded(call)),
            make=Make(lambda _user, seed: guarded(make, seed)),
        )
        self._kept.append(given)
        self._engine.require(self._library.attune_lab_add_call(self._session, byref(given)))

    def run(self, progress: Callable[[str, float], None] = lambda contender, done: None) -> dict:
        def guarded(_user, contender, done):
            try:
                progress(contender.decode(), done)
                return 0 if self._error is None else 1
            except BaseException as error:
                self._error = error
                return 1

        text = c_char_p()
        status = self._library.attune_lab_run(self._session, ProgressFunction(guarded), None, byref(text))
        if self._error is not None:
            raise self._error
        self._engine.require(status)
        return json.loads(text.value)

    def environment(self) -> dict:
        text = c_char_p()
        self._engine.require(self._library.attune_lab_environment(self._session, byref(text)))
        return json.loads(text.value)
