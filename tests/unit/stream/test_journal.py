"""What was written down is there again, wherever the writer was cut off."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import closing

import pytest

from workbench.errors import ConfigError, StreamError
from workbench.stream import journal as module
from workbench.stream.journal import NAME, Journal, Record

KEPT = [Record(("first", 1), b"abc"), Record(("second", 2)), Record(("third", 3), bytes(1000))]


def kept(folder):
    with closing(Journal(folder)) as journal:
        return list(journal.records())


@pytest.fixture
def folder(tmp_path):
    journal = Journal(tmp_path / "new")
    journal.append(KEPT[:2])
    journal.append(KEPT[2:])
    journal.close()
    return tmp_path / "new"


def test_what_was_kept_comes_back_in_its_order(folder):
    assert kept(folder) == KEPT


def test_a_record_that_was_cut_off_is_none_and_the_next_takes_its_place(folder):
    whole = (folder / NAME).read_bytes()
    begins = []
    with closing(Journal(folder / "again")) as journal:
        for record in KEPT:
            begins.append(journal.size)
            journal.append([record])
    assert journal.size == len(whole)
    for end in (0, 3, *begins, *range(begins[0], len(whole), 13)):
        (folder / NAME).write_bytes(whole[:end])
        count = sum(begin <= end for begin in [*begins[1:], len(whole)])
        with closing(Journal(folder)) as journal:
            assert list(journal.records()) == KEPT[:count], end
            journal.append([Record("after it")])
        assert kept(folder) == [*KEPT[:count], Record("after it")], end


def test_a_record_that_was_damaged_is_the_last(folder):
    whole = bytearray((folder / NAME).read_bytes())
    whole[-10] ^= 1
    (folder / NAME).write_bytes(whole)
    assert kept(folder) == KEPT[:2]


@pytest.mark.parametrize("found", [b"my notes", b"my notes, which are longer than its first line"])
def test_another_file_in_its_place_is_refused_and_left_alone(tmp_path, found):
    (tmp_path / NAME).write_bytes(found)
    with pytest.raises(StreamError, match="not the journal of a stream"):
        kept(tmp_path)
    assert (tmp_path / NAME).read_bytes() == found


def test_two_at_once_are_refused_until_the_first_has_died(folder):
    script = (
        "import sys; from pathlib import Path; from workbench.stream.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1])); print('has it', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"has it\n"
        with pytest.raises(StreamError, match=f"another process runs the stream in {folder}"):
            Journal(folder)
        os.kill(other.pid, 9)
    assert kept(folder) == KEPT


def test_one_that_is_written_anew_keeps_what_is_appended_meanwhile(folder):
    journal = Journal(folder)
    journal.rewrite([Record("instead"), Record("of all", bytes(5_000_000))])
    numbers = itertools.count()
    added = []
    while journal._rewriting is not None:
        added.append(Record(next(numbers), b"x"))
        journal.append(added[-1:])
    added.append(Record("later"))
    journal.append(added[-1:])
    journal.close()
    assert (folder / NAME).stat().st_size == journal.size
    assert kept(folder) == [Record("instead"), Record("of all", bytes(5_000_000)), *added]
    assert not (folder / "stream.new").exists()


def test_one_that_cannot_be_written_anew_stays_as_it_was(folder):
    (folder / "stream.new").mkdir()
    journal = Journal(folder)
    journal.rewrite([Record("instead")], wait=True)
    journal.append([Record("later")])
    journal.close()
    assert kept(folder) == [*KEPT, Record("later")]


def test_a_record_that_does_not_fit_takes_none_with_it(folder, monkeypatch):
    journal = Journal(folder)
    write_all = module._write_all

    def half(file, written):
        write_all(file, written[: len(written) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_all", half)
    with pytest.raises(OSError, match="No space"):
        journal.append([Record("too large")])
    monkeypatch.undo()
    journal.append([Record("small")])
    journal.close()
    assert kept(folder) == [*KEPT, Record("small")]


def test_a_folder_that_cannot_be_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="folder: "):
        Journal(tmp_path / "file" / "in it")
