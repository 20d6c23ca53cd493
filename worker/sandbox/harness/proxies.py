"""What the checks see of the program: references that ask it, and never let it judge itself.

A check's own values must not reach a comparison that the program can redefine. So an object of the
program's own class never equals a plain value, is not ordered against one, and an operator between
the two, or one that turns the object into a number, must give an object again.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from worker.sandbox.harness.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.sandbox.harness.peer import Message

#: Methods of built-in types that would hand the program what it is measured against.
_TELLING = {"startswith", "endswith", "issubset", "issuperset", "isdisjoint"}
_PUBLIC_SPECIALS = ("len", "bool", "str", "repr", "next", "hash")
_UNARY = ("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round")
_BINARY = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul"
    " rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift iadd isub imul"
).split()
_ORDER = ("lt", "le", "gt", "ge")


class ProgramExited(BaseException):
    """The program tried to end its process instead of returning."""


class Remote:
    """An object of the program's, held over there."""

    __slots__ = ("__weakref__", "_link", "_number", "_type")

    def __init__(self, link: Link, number: int, kind: str) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_type", kind)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _link(self).call(_number(self), args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = _link(self).ask({"q": "get", "id": _number(self), "name": name})
        if name in _TELLING and isinstance(found, Remote):
            raise TypeError(f"{name}: not asked of an object of the program's own class")
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        _link(self).ask({"q": "set", "id": _number(self), "name": name, "value": value})

    def __iter__(self) -> Iterator[Any]:
        found = self._special("iter")
        return _walk(found) if isinstance(found, Remote) else iter(found)

    def __getitem__(self, key: Any) -> Any:
        return self._special("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._special("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._special("delitem", key)

    def __contains__(self, item: Any) -> bool:
        if isinstance(item, Remote):
            return bool(self._special("contains", item))
        return any(item is found or item == found for found in self)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Remote):
            return False
        return _number(self) == _number(other) or self._special("eq", other) is True

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __instancecheck__(self, instance: Any) -> bool:
        if not isinstance(instance, Remote):
            return False
        question = {"q": "is", "id": _number(instance), "cls": _number(self)}
        return _link(self).ask(question) is True

    def __enter__(self) -> Any:
        return self._special("enter")

    def __exit__(self, *error: Any) -> Any:
        return self._special("exit", None, None, None)

    def _special(self, name: str, *args: Any) -> Any:
        question = {"q": "special", "id": _number(self), "name": f"__{name}__", "args": list(args)}
        return _link(self).ask(question)


def _walk(iterator: Any) -> Iterator[Any]:
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def _link(remote: Remote) -> Link:
    return object.__getattribute__(remote, "_link")  # type: ignore[no-any-return]


def _number(remote: Remote) -> int:
    return object.__getattribute__(remote, "_number")  # type: ignore[no-any-return]


def _add_specials() -> None:
    def plain(name: str) -> Any:
        return lambda self: self._special(name)

    def unary(name: str) -> Any:
        def method(self: Remote, *args: Any) -> Any:
            return _object_only(name, self._special(name, *args))

        return method

    def binary(name: str) -> Any:
        def method(self: Remote, other: Any) -> Any:
            result = self._special(name, other)
            return result if isinstance(other, Remote) else _object_only(name, result)

        return method

    def order(name: str) -> Any:
        def method(self: Remote, other: Any) -> Any:
            return self._special(name, other) if isinstance(other, Remote) else NotImplemented

        return method

    groups = ((_PUBLIC_SPECIALS, plain), (_UNARY, unary), (_BINARY, binary), (_ORDER, order))
    for names, make in groups:
        for name in names:
            setattr(Remote, f"__{name}__", make(name))


def _object_only(name: str, result: Any) -> Any:
    if isinstance(result, Remote) or result is NotImplemented:
        return result
    raise TypeError(f"{name}: an object of the program's own class does not stand for a value")


_add_specials()


class Link:
    """The checks' end: asks the program, resolves references, raises what the program raised."""

    def __init__(self) -> None:
        self.peer: Any = None
        self.exited = False
        self.used = False
        self._remotes: dict[int, Remote] = {}
        self._errors: dict[tuple[str, ...], type] = {}
        self._ours: list[Any] = []

    def ask(self, question: Message) -> Any:
        """Ask something and return the value of the answer."""
        for part in ("args", "named", "value"):
            if part in question:
                question[part] = encode(question[part], self._refer)
        answer = self.peer.ask(question)
        if "error" in answer:
            self._raise(answer["error"])
        return self._value(answer.get("value"))

    def call(self, number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call something of the program's; changes to arguments are carried over."""
        self.used = True
        question = {"q": "call", "id": number}
        question["args"] = encode(list(args), self._refer)
        question["named"] = encode(named, self._refer)
        answer = self.peer.ask(question)
        if "error" in answer:
            self._raise(answer["error"])
        changed = answer.get("args")
        if isinstance(changed, list):
            for ours, theirs in zip(args, changed):  # noqa: B905
                _carry_over(ours, self._value(theirs))
        value = answer.get("value")
        if isinstance(value, dict) and value.get("$") == "arg":
            place = value.get("n")
            return args[place] if isinstance(place, int) and 0 <= place < len(args) else None
        return self._value(value)

    def describe(self, form: Message) -> Any:
        """Return the value of a form that came with the program's names."""
        return self._value(form)

    def serve(self, question: Message) -> Message:
        """Answer the program: only what a check handed over, only what is public."""
        try:
            return {"value": encode(self._answer(question), self._refer)}
        except Exception as error:  # noqa: BLE001
            return {"error": f"{type(error).__name__}: {error}"[:500]}

    def _answer(self, question: Message) -> Any:
        target = self._ours[int(question["id"])]
        if question["q"] == "call":
            args = [self._value(item) for item in question.get("args") or []]
            return target(*args, **self._value(question.get("named") or {}))
        name = str(question.get("name"))
        if name.startswith("_") or callable(target):
            raise AttributeError(name)
        if question["q"] == "set":
            return setattr(target, name, self._value(question.get("value")))
        return getattr(target, name)

    def _value(self, form: Any) -> Any:
        return decode(form, self._resolve)

    def _refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {"$": "yours", "id": _number(value)}
        self._ours.append(value)
        return {"$": "ref", "id": len(self._ours) - 1}

    def _resolve(self, form: dict[str, Any]) -> Any:
        kind, number = form.get("$"), form.get("id")
        if kind == "yours" and isinstance(number, int):
            return self._ours[number]
        if kind == "refused":
            return NotImplemented
        if kind != "ref" or not isinstance(number, int):
            raise TypeError("the program sent what is not a value")
        if isinstance(form.get("error"), list):
            return self._error_class(form["error"])
        if number not in self._remotes:
            self._remotes[number] = Remote(self, number, str(form.get("type")))
        return self._remotes[number]

    def _error_class(self, lineage: Any) -> type:
        names = tuple(str(name) for name in lineage)
        if names not in self._errors:
            known = [getattr(builtins, name, None) for name in names]
            base = next(
                (k for k in known if isinstance(k, type) and issubclass(k, Exception)), Exception
            )
            own = base.__name__ == names[0] if names else True
            parent = base if own else self._parent_error(names[1:], base)
            self._errors[names] = base if own else type(names[0], (parent,), {})
        return self._errors[names]

    def _parent_error(self, names: tuple[str, ...], base: type) -> type:
        return self._error_class(names) if names else base

    def _raise(self, error: Any) -> None:
        lineage = error.get("lineage") if isinstance(error, dict) else None
        names = [str(name) for name in lineage] if isinstance(lineage, list) else ["Exception"]
        text = str(error.get("text", "")) if isinstance(error, dict) else ""
        if {"SystemExit", "KeyboardInterrupt", "GeneratorExit"} & set(names):
            self.exited = True
            raise ProgramExited(f"{names[0]}: {text}")
        args = error.get("args") if isinstance(error, dict) else None
        raised = self._error_class(names)
        try:
            made = raised(*(args if isinstance(args, list) else [text]))
        except Exception:  # noqa: BLE001
            made = Exception(text)
        made.where = str(error.get("where", "")) if isinstance(error, dict) else ""
        raise made


def _carry_over(ours: Any, theirs: Any) -> None:
    """Make a check's own container what the program made of its copy."""
    if isinstance(ours, list) and isinstance(theirs, list):
        ours[:] = theirs
    elif isinstance(ours, (dict, set)) and isinstance(theirs, (dict, set)):
        ours.clear()
        ours.update(theirs)
    elif isinstance(ours, bytearray) and isinstance(theirs, (bytes, bytearray)):
        ours[:] = theirs
