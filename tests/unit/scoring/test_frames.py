"""Messages to and from helpers arrive as they were sent, or not at all."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_client import Output
from worker.scoring.helpers import frames
from worker.scoring.helpers.frames import FrameError, pack, unpack

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def there_and_back(value):
    return unpack(pack(value)[frames.HEADER.size :])


@given(PLAIN)
def test_plain_data_arrives_as_it_was_sent(value):
    assert there_and_back(value) == value


def test_lone_surrogates_and_huge_numbers_arrive():
    assert there_and_back(["\ud800", 10**60, -(10**60)]) == ["\ud800", 10**60, -(10**60)]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "bool", "uint8"])
def test_arrays_keep_dtype_and_shape(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)

    found = there_and_back({"ids": array})["ids"]

    assert found.dtype == array.dtype
    assert (found == array).all()
    found[0, 0] = 1  # writable, as a function may expect


def test_outputs_arrive_as_outputs():
    output = Output(prompt_ids=np.array([1, 2]), response_ids=[3], text="x")

    found = there_and_back(output)

    assert isinstance(found, Output)
    assert found.prompt_ids.tolist() == [1, 2]
    assert (found.response_ids, found.text) == ([3], "x")


def test_what_is_no_data_is_refused():
    with pytest.raises(TypeError, match="object"):
        pack({"model": object()})


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x92\x01", pack(1)[4:] + b"\x00", b"\xc7\x01\x09\x00",
     b"\xc7\x0c\x01\x93\xa1O\x91\x01\xa8\x00\x00\x00\x00\x00\x00\x00\x00"],
)  # fmt: skip
def test_nonsense_is_a_frame_error(body):
    with pytest.raises(FrameError):
        unpack(body)


def test_a_message_in_pieces_is_put_together_and_an_end_is_none():
    ours, theirs = socket.socketpair()
    message = pack({"text": "x" * 100_000})

    def send():
        with theirs:
            for at in range(0, len(message), 7000):
                theirs.sendall(message[at : at + 7000])

    sender = threading.Thread(target=send)
    sender.start()
    with ours:
        assert len(frames.receive(ours)["text"]) == 100_000
        assert frames.receive(ours) is None
    sender.join()
