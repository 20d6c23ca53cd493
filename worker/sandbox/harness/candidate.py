"""The program's side: loads it and calls what the checks ask for.

Nothing here is to be trusted: once loaded, the program can do as it likes in this process. It can
answer as it likes, too, and that is all: what it is measured against never comes here.
"""

from __future__ import annotations

import sys
import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from worker.sandbox.harness.codec import decode, encode
from worker.sandbox.harness.peer import Gone, Peer

if TYPE_CHECKING:
    from worker.sandbox.harness.peer import Message

NAME = "solution"
#: What programs for function-call tasks may use without importing it, as on the judges they are
#: written for.
PRELUDE = """
import bisect, collections, copy, functools, heapq, itertools, json, math, operator, random, re
import string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from random import *
from re import *
from string import *
from typing import *
from builtins import *
"""


_FUNCTIONS = {
    f"__{function.__name__}__": function for function in (bool, hash, iter, len, next, repr, str)
}


class Theirs:
    """Something of the checks', usable by the program: called, or its public attributes."""

    def __init__(self, program: Program, number: int) -> None:
        self.__dict__["_at"] = (program, number)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._ask(q="call", args=list(args), named=named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask(q="get", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask(q="set", name=name, value=value)

    def _ask(self, **question: Any) -> Any:
        program, number = self.__dict__["_at"]
        for part in ("args", "named", "value"):
            if part in question:
                question[part] = encode(question[part], program.refer)
        answer = program.peer.ask(dict(question, id=number))
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return decode(answer.get("value"), program.resolve)


class Program:
    """The loaded program and the objects of it that the checks hold."""

    def __init__(self, reading: int, writing: int) -> None:
        self.peer = Peer(reading, writing, self.serve)
        self.module = types.ModuleType(NAME)
        self.held: list[Any] = []

    def serve(self, question: Message) -> Message:
        """Answer one question of the checks."""
        try:
            return getattr(self, "on_" + str(question["q"]))(question)  # type: ignore[no-any-return]
        except Gone:
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit is an answer, too)
            return {"error": _describe(error)}

    def on_load(self, question: Message) -> Message:
        """Run the program's text as a module."""
        sys.modules[NAME] = self.module
        space = self.module.__dict__
        space["__file__"] = "solution.py"
        if question.get("function"):
            exec(PRELUDE, space)  # noqa: S102
            # what the task asks for must come from the program, not from the prelude
            space.pop(question["function"], None)
        exec(compile(question["source"], "solution.py", "exec"), space)  # noqa: S102
        return {}

    def on_names(self, question: Message) -> Message:
        """Return what the program defines under these names."""
        space = self.module.__dict__
        known = {name: space[name] for name in question["names"] if name in space}
        return {"names": {name: self._describe_global(value) for name, value in known.items()}}

    def on_method(self, question: Message) -> Message:
        """Return a function by name, or a method of `Solution`."""
        name = question["name"]
        found = self.module.__dict__.get(name)
        if not callable(found):
            holder = self.module.__dict__.get("Solution")
            found = getattr(holder(), name, None) if holder is not None else None
        if not callable(found):
            raise NameError(f"name {name!r} is not defined")
        return {"value": self.refer(found)}

    def on_call(self, question: Message) -> Message:
        """Call something; say what it returned and how it changed its arguments."""
        function = self.held[question["id"]]
        args = decode(question["args"], self.resolve)
        named = decode(question["named"], self.resolve)
        result = function(*args, **named)
        same = next((place for place, arg in enumerate(args) if arg is result), None)
        value = {"$": "arg", "n": same} if _is_container(result) and same is not None else None
        after = encode(args, self.refer)
        changed = after != question["args"]
        return {
            "value": encode(result, self.refer) if value is None else value,
            "args": after if changed else None,
        }

    def on_get(self, question: Message) -> Message:
        """Return an attribute."""
        return {"value": encode(getattr(self.held[question["id"]], question["name"]), self.refer)}

    def on_set(self, question: Message) -> Message:
        """Set an attribute."""
        value = decode(question["value"], self.resolve)
        setattr(self.held[question["id"]], question["name"], value)
        return {}

    def on_special(self, question: Message) -> Message:
        """Call a special method through its type, as the language does."""
        target = self.held[question["id"]]
        args = decode(question["args"], self.resolve)
        function = _FUNCTIONS.get(question["name"])
        if function is not None and not args:
            return {"value": encode(function(target), self.refer)}
        method = getattr(type(target), question["name"], None)
        if method is None:
            raise TypeError(f"{type(target).__name__!r} object has no {question['name']}")
        result = method(target, *args)
        if result is NotImplemented:
            return {"value": {"$": "refused"}}
        return {"value": encode(result, self.refer)}

    def on_is(self, question: Message) -> Message:
        """Whether an object is an instance of a class."""
        return {"value": isinstance(self.held[question["id"]], self.held[question["cls"]])}

    def refer(self, value: Any) -> dict[str, Any]:
        """Hold on to an object and return its reference."""
        if type(value) is Theirs:
            return {"$": "yours", "id": value.__dict__["_at"][1]}
        number = next((n for n, held in enumerate(self.held) if held is value), None)
        if number is None:
            number = len(self.held)
            self.held.append(value)
        shown = {"$": "ref", "id": number, "type": type(value).__name__, "call": callable(value)}
        if isinstance(value, type) and issubclass(value, BaseException):
            shown.update(error=_lineage(value))
        return shown

    def resolve(self, form: dict[str, Any]) -> Any:
        """Return what a reference stands for."""
        if form.get("$") == "yours":
            return self.held[form["id"]]
        if form.get("$") == "ref":
            return Theirs(self, form["id"])
        raise ValueError("not a value")

    def _describe_global(self, value: Any) -> dict[str, Any]:
        if isinstance(value, types.ModuleType):
            return {"kind": "module", "module": value.__name__}
        home = getattr(value, "__module__", None)
        if callable(value) and isinstance(home, str) and home != NAME:
            name = getattr(value, "__qualname__", "")
            return {"kind": "library", "module": home, "name": name, "value": self.refer(value)}
        return {"kind": "own", "value": encode(value, self.refer)}


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, dict, set, bytearray)) or type(value) is Theirs


def _lineage(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__ if issubclass(base, BaseException)]


def _describe(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:500]
        import traceback

        where = "".join(traceback.format_exception(type(error), error, error.__traceback__)[-2:])
    except Exception:  # noqa: BLE001
        text = where = ""
    args = [item for item in error.args if isinstance(item, (str, int, float))]
    return {"lineage": _lineage(type(error)), "text": text, "where": where[-1500:], "args": args}


def main(reading: int, writing: int) -> None:
    """Say that we are here, then answer until the checks are gone."""
    program = Program(reading, writing)
    sys.argv[:] = ["solution.py"]
    with suppress(Gone):
        program.peer.send({"ready": True})
        program.peer.answer_for_ever()
