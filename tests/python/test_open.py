"""Opening: from everything that may hold a snapshot; and what is no snapshot."""
import errno
import gzip
import io
import mmap
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest
from conftest import HANG_S, posix_only

import tessera
from tessera import _core


def peak_of(source):
    return tessera.open(source).peak().to_dict()['devices']


STABLE = """
PyBool_FromLong PyBytes_AsString PyBytes_AsStringAndSize PyBytes_FromStringAndSize PyBytes_Size
PyCapsule_GetPointer PyCapsule_New PyDict_GetItemString PyDict_New PyDict_Next PyDict_SetItemString PyDict_Type
PyErr_CheckSignals PyErr_Clear PyErr_Format PyErr_NoMemory PyErr_Occurred PyErr_SetFromErrno
PyErr_SetObject PyErr_SetString PyEval_RestoreThread PyEval_SaveThread PyExc_AttributeError
PyExc_BufferError PyExc_IndexError PyExc_OSError PyExc_RuntimeError PyExc_TypeError
PyExc_ValueError PyIndex_Check PyList_Append PyList_GetItem PyList_New PyList_SetItem PyList_Size
PyList_Type PyLong_AsLongLong PyLong_AsSize_t PyLong_AsUnsignedLong PyLong_AsUnsignedLongLong
PyLong_FromLong PyLong_FromLongLong PyLong_FromUnsignedLong PyLong_FromUnsignedLongLong PyMem_Free
PyMem_Malloc PyMemoryView_FromObject PyModule_AddObject PyModule_Create2 PyNumber_Add PyNumber_AsSsize_t
PyNumber_Lshift
PyNumber_Index PyOS_snprintf PyObject_Free PyObject_GetItem PyObject_IsTrue PyObject_Str PySequence_GetItem
PySequence_Size PyTuple_GetItem PyTuple_Pack PyTuple_Size PyType_FromSpec PyType_GetFlags
PyUnicode_AsEncodedString PyUnicode_AsUTF8String PyUnicode_DecodeUTF8 PyUnicode_FromFormat PyUnicode_FromString
_PyArg_ParseTuple_SizeT _PyObject_CallFunction_SizeT _PyObject_CallMethod_SizeT _PyObject_New
_Py_BuildValue_SizeT _Py_Dealloc _Py_NoneStruct
_PyArg_ParseTuple _PyObject_CallFunction _PyObject_CallMethod _Py_BuildValue PyArg_ParseTuple
PyObject_CallFunction PyObject_CallMethod Py_BuildValue Py_IncRef Py_DecRef
PyArg_ParseTupleAndKeywords _PyArg_ParseTupleAndKeywords_SizeT PyBool_Type PyFloat_AsDouble PyFloat_Type PyImport_ImportModule PyList_GetSlice PyLong_AsDouble
PyLong_AsLongLongAndOverflow PyLong_FromDouble PyObject_HasAttrString PyObject_HashNotImplemented
PySeqIter_New PySequence_List PySlice_AdjustIndices PySlice_Type PySlice_Unpack PyType_IsSubtype PyUnicode_Compare
PyObject_GetAttrString PyUnicode_CompareWithASCIIString PyUnicode_Join _Py_NotImplementedStruct _Py_TrueStruct
"""


def test_the_extension_takes_what_the_headers_of_3_9_declare():
    """What only a newer header has, an older one lets through as a function that returns int. Before
    a name is added: does a file that uses it compile with Py_LIMITED_API on 3.9?"""
    nm = shutil.which('nm')
    if not nm:
        pytest.skip('nm is absent')
    text = subprocess.run([nm, '-D', '--undefined-only', _core.__file__], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    names = {line.split()[-1] for line in text.splitlines()}
    used = {name for name in names if name.lstrip('_').startswith('Py')}
    assert len(used) > 20 and used <= set(STABLE.split())


def test_every_source_gives_the_same(train, tmp_path):
    data = train.read_bytes()
    want = peak_of(str(train))
    packed = tmp_path / 'packed'
    packed.write_bytes(gzip.compress(data))
    with open(train, 'rb') as file, open(train, 'rb') as mapped:
        view = mmap.mmap(mapped.fileno(), 0, access=mmap.ACCESS_READ)
        sources = [train, pathlib.Path(train), str(train).encode().decode(), data, bytearray(data),
                   memoryview(data), view, file, io.BytesIO(data), pickle.loads(data), packed]
        for source in sources:
            assert peak_of(source) == want
        view.close()


def test_a_live_snapshot_is_not_changed(train):
    live = pickle.loads(train.read_bytes())
    before = pickle.dumps(live)
    assert tessera.open(live).path == '<snapshot>'
    assert pickle.dumps(live) == before


def test_what_it_says_of_the_file(train):
    s = tessera.open(train)
    assert (s.path, s.format, s.input_bytes) == (str(train), 'pickle', train.stat().st_size)
    assert s.devices == [0] and s.warnings == []
    assert repr(s).startswith(f'{train}: pickle, ')


def test_a_file_called_dash_is_a_file(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / '-').write_bytes(train.read_bytes())
    assert tessera.open('-').path == '-'


@posix_only
def test_a_path_that_is_no_utf8(train, tmp_path):
    name = bytes(tmp_path) + b'/\xff.pickle'
    with open(name, 'wb') as file:
        file.write(train.read_bytes())
    assert tessera.open(pathlib.Path(name.decode(errors='surrogateescape'))).devices == [0]


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        tessera.open(tmp_path / 'absent')
    assert isinstance(caught.value, tessera.Error)
    assert caught.value.errno == errno.ENOENT and caught.value.filename.endswith('absent')


def test_a_folder(tmp_path):
    with pytest.raises(tessera.ReadError, match='directory'):
        tessera.open(tmp_path)


def test_no_snapshot():
    with pytest.raises(tessera.FormatError, match='not a memory snapshot') as caught:
        tessera.open(b'plain text')
    assert caught.value.offset == 0 and isinstance(caught.value, ValueError)


@pytest.mark.parametrize('name', ['x\x1b[2J\x9b31m\u202egnp', 'x\udcff', 'a\nb', 'a\0b'])
def test_a_message_does_not_drive_the_terminal(name):
    class File(io.BytesIO):
        pass
    source = File(b'plain text')
    source.name = name
    with pytest.raises(tessera.FormatError) as caught:
        tessera.open(source)
    assert str(caught.value).isprintable() and 'not a memory snapshot' in str(caught.value)


@pytest.mark.parametrize('source', [None, 3, 1.5, object(), io.StringIO('text')])
def test_no_source(source):
    with pytest.raises(TypeError):
        tessera.open(source)


def test_nothing_is_executed(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        tessera.open(made / 'exec.pickle')
    except tessera.Error:
        pass
    assert list(tmp_path.iterdir()) == []


def test_warnings(made):
    warnings = tessera.open(made / 'truncated.pickle').warnings
    assert [warning.code for warning in warnings] and all(w.count and w.message for w in warnings)
    assert 'truncated' in ' '.join(f'{w.code} {w.message}' for w in warnings)


def test_progress_and_what_it_raises(tmp_path):
    seen = []

    def stop(done, total):
        raise KeyError('enough')
    large = pickle.dumps({'segments': [], 'device_traces': [[
        {'action': 'alloc', 'addr': i, 'size': 1, 'stream': 0, 'time_us': i, 'frames': []}
        for i in range(200_000)]]}, protocol=4)
    path = tmp_path / 'large.pickle'
    path.write_bytes(large)
    tessera.open(path, progress=lambda done, total: seen.append((done, total)))
    assert seen and all(0 <= done <= total == len(large) for done, total in seen)
    with pytest.raises(KeyError, match='enough'):
        tessera.open(path, progress=stop)


@posix_only
def test_ctrl_c_ends_the_reading(tmp_path):
    # The pipe is empty once the reader has begun; from the signal on it gets more and more to read.
    code = ('import fcntl, os, signal, termios, threading, time, tessera\n'
            'read, write = os.pipe()\n'
            'os.write(write, b"\\x80\\x04]")\n'
            'def interrupt():\n'
            '    while any(fcntl.ioctl(read, termios.FIONREAD, bytes(4))): time.sleep(0.01)\n'
            '    os.kill(os.getpid(), signal.SIGINT)\n'
            '    while True: os.write(write, b"N0" * 30000)\n'
            'threading.Thread(target=interrupt, daemon=True).start()\n'
            'try: tessera.open(f"/proc/self/fd/{read}")\n'
            'except KeyboardInterrupt: os.write(1, b"interrupted")\n'
            'os._exit(0)\n')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          timeout=HANG_S, check=False, cwd=tmp_path)
    assert done.stdout == 'interrupted', done.stderr


def test_closing(train):
    with tessera.open(train) as s:
        peak = s.peak()
        sizes = s.events.size_bytes
        trace = s.events
    assert peak.peak.event >= 0 and len(sizes) == len(sizes.tolist())
    assert str(peak)
    assert repr(s) == '<tessera Snapshot, closed>'
    for ask in (s.peak, lambda: s.devices, lambda: s.events, lambda: s.stack(0), lambda: trace.address,
                lambda: s.export(), lambda: s.trim(), lambda: s.allocations(0)):
        with pytest.raises(ValueError, match='closed'):
            ask()
    s.close()


def test_types_are_not_made_by_hand():
    for kind in (tessera._core.Snapshot, tessera._core.Column, tessera._core.Answer):
        with pytest.raises(TypeError):
            kind()


def test_recording_is_imported_when_it_is_named():
    code = ('import sys, tessera\n'
            'assert not [name for name in sys.modules if name.startswith(("tessera._capture", "torch"))]\n'
            'assert callable(tessera.record) and "record" in dir(tessera)\n'
            'assert tessera.record is tessera.record\n'
            'try: tessera.nonsense\n'
            'except AttributeError: print("well")\n')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.stdout == 'well\n', done.stderr
