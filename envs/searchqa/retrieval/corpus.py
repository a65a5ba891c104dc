"""A corpus on disk, from which all processes of a machine map its passages."""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.envs.cache import cache_folder, publish
from agentgym_tok.envs.searchqa.retrieval.documents import read_passages
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.errors import DataCorrupt, DataMissing

__all__ = ["Corpus", "Progress", "Source", "as_corpus"]

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called now and then with what is done, and with what there is to do where that is known."""

_LAYOUT = 1
_TEXT, _ENDS, _ABOUT = "text.bin", "ends.npy", "about.json"
_STEP = 10_000


class Corpus(Sequence[Passage]):
    """Offer the passages of a stored corpus by their numbers; nothing is read before it is asked for.

    Args:
        folder: Where `Corpus.store` or `Corpus.read` put it.

    Raises:
        DataMissing: There is no such folder, or no corpus in it.
        DataCorrupt: A file is cut off or of another kind.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._text, self._ends_F = _opened(self.folder)

    @classmethod
    def store(
        cls, passages: Iterable[Passage], *, cache: str | Path | None = None, progress: Progress | None = None
    ) -> "Corpus":
        """Store passages in a folder named by their content, so that equal ones are stored once.

        Args:
            passages: In the order that settles ties; read once, one at a time.
            cache: The folder above; see `cache_folder`.
            progress: Called with the number of passages done.

        Raises:
            DataCorrupt: There are none, or two have the same id.
        """
        return cls(publish(cache_folder("searchqa", cache), partial(_write, passages, progress=progress)))

    @classmethod
    def read(cls, *files: str | Path, cache: str | Path | None = None, progress: Progress | None = None) -> "Corpus":
        """Store the passages of files; files that were stored before are digested only.

        Args:
            files: See `read_passages`; pooled in this order.
            cache: The folder above; see `cache_folder`.
            progress: Called with the number of passages done.

        Raises:
            DataMissing: A file is not there.
            DataCorrupt: A row is no passage, or two have the same id.
        """
        above, name = cache_folder("searchqa", cache), _digest(files)
        if not (above / name).is_dir():

            def fill(work: Path) -> str:
                _write(read_passages(files), work, progress=progress)
                return name

            publish(above, fill)
        return cls(above / name)

    def __len__(self) -> int:
        return len(self._ends_F) // 3

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        numbers = range(len(self))[index]
        return self.passage(numbers) if isinstance(numbers, int) else [self.passage(number) for number in numbers]

    def passage(self, number: int, score: float = 0.0) -> Passage:
        """Return a passage by its number, from 0, with the score that a search gave it."""
        field = 3 * number
        start = int(self._ends_F[field - 1]) if field else 0
        name_end, title_end, end = self._ends_F[field : field + 3].tolist()
        data, name, title = self._text[start:end].tobytes(), name_end - start, title_end - start
        return Passage(data[:name].decode(), data[name:title].decode(), data[title:].decode(), score)

    def __iter__(self) -> Iterator[Passage]:
        return map(self.passage, range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus, (self.folder,)


Source: TypeAlias = Corpus | str | Path | Sequence[str | Path]
"""Where a corpus comes from: one that is open, the folder of a stored one, a file, or several files."""


def as_corpus(source: Source, progress: Progress | None = None) -> Corpus:
    """Open the corpus that is meant.

    Raises:
        DataMissing: A file is not there.
        DataCorrupt: It is no corpus.
    """
    if isinstance(source, Corpus):
        return source
    files = [source] if isinstance(source, str | Path) else list(source)
    if len(files) == 1 and Path(files[0]).is_dir():
        return Corpus(files[0])
    return Corpus.read(*files, progress=progress)


def _digest(files: Sequence[str | Path]) -> str:
    whole = hashlib.blake2b(f"layout {_LAYOUT}".encode(), digest_size=16)
    for file in map(Path, files):
        try:
            with file.open("rb") as stream:
                whole.update(file.suffix.encode() + hashlib.file_digest(stream, "blake2b").digest())
        except FileNotFoundError as error:
            raise DataMissing("the corpus is not there", where=file, fix="check the path") from error
    return f"files-{whole.hexdigest()}"


def _write(passages: Iterable[Passage], folder: Path, *, progress: Progress | None) -> str:
    """Write the files of a corpus and return its name: the digest of what it holds."""
    ends, hashes, end = array("q"), array("q"), 0
    whole = hashlib.blake2b(f"layout {_LAYOUT}".encode(), digest_size=16)
    with (folder / _TEXT).open("wb") as stream:
        for number, passage in enumerate(passages, 1):
            fields = (passage.id.encode(), passage.title.encode(), passage.text.encode())
            for field in fields:
                ends.append(end := end + len(field))
            data = b"".join(fields)
            stream.write(data)
            whole.update(ends[-3:].tobytes() + data)
            hashes.append(hash(passage.id))
            if progress and not number % _STEP:
                progress(number, None)
    if not hashes:
        raise DataCorrupt("the corpus holds no passages", where="corpus")
    np.save(folder / _ENDS, np.frombuffer(ends, np.int64))
    (folder / _ABOUT).write_text(json.dumps({"layout": _LAYOUT, "passages": len(hashes), "bytes": end}), "utf-8")
    _refuse_equal_ids(Corpus(folder), np.frombuffer(hashes, np.int64))
    return whole.hexdigest()


def _refuse_equal_ids(corpus: Corpus, hashes_N: NDArray[np.int64]) -> None:
    # Hashes find the few passages to look at, so that a million ids never stand in memory.
    _, firsts, counts = np.unique(hashes_N, return_index=True, return_counts=True)
    for first in firsts[counts > 1]:
        seen: dict[str, int] = {}
        for number in map(int, np.flatnonzero(hashes_N == hashes_N[first])):
            name = corpus[number].id
            if name in seen:
                where, got = f"corpus, passages {seen[name]} and {number}", repr(name)
                raise DataCorrupt("two passages have the same id", where=where, got=got, expected="unique ids")
            seen[name] = number


def _opened(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not (folder / _ABOUT).is_file():
        fix = "make it with `Corpus.read` or `Corpus.store`"
        raise DataMissing("no stored corpus", where=folder, expected=_ABOUT, fix=fix)
    try:
        about = json.loads((folder / _ABOUT).read_bytes())
        # Mapped, without what the memmap class adds to every slice.
        ends_F = np.asarray(np.load(folder / _ENDS, mmap_mode="r", allow_pickle=False))
        text = np.asarray(np.memmap(folder / _TEXT, np.uint8, "r"))
        found = {"layout": _LAYOUT, "passages": len(ends_F) // 3, "bytes": len(text)}
        if about != found or int(ends_F[-1]) != len(text):
            raise ValueError(f"{about} stands in {_ABOUT}, the files hold {found}")  # noqa: TRY301  told below
    except (OSError, ValueError, EOFError) as error:
        fix = "remove the folder; it is made again"
        raise DataCorrupt("a stored corpus cannot be read", where=folder, got=str(error), fix=fix) from error
    return text, ends_F
