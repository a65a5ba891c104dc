"""Contents of messages: texts, and the images among them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from agentgym_tok.proxy.wire.ask import Image
from agentgym_tok.proxy.wire.reading import AskPart, BadAsk, Notes

__all__ = ["Part", "PartReader"]

_Part = TypeVar("_Part", bound="Part")


class Part(AskPart):
    """Hold one part of a content."""

    type: str
    text: str | None = None


class PartReader(Generic[_Part]):
    """Read contents, and collect the images that they show.

    Args:
        notes: Collects what has no effect.
        path: How the notes call a part: `messages[].content[].`.
        texts: The field that holds the text of each type of part that is one.
        image: Reads a part that is an image from it and its place; None where it is none.
    """

    def __init__(
        self, notes: Notes, path: str, texts: Mapping[str, str], image: Callable[[_Part, str], Image | None]
    ) -> None:
        self._notes, self._path, self._texts, self._image = notes, path, texts, image
        self.images: list[Image] = []

    def read(
        self,
        content: str | Sequence[_Part] | None,
        where: str,
        *,
        start: int = 0,
        between: str = "\n",
        images: bool = False,
    ) -> tuple[str, tuple[str, ...]]:
        """Return a content's text and the hashes of its images.

        Args:
            content: A text, or parts.
            where: Its place.
            start: The place of the first part in it.
            between: What joins texts.
            images: They may be shown here.

        Raises:
            BadAsk: A part is neither.
        """
        if content is None or isinstance(content, str):
            return content or "", ()
        said: list[str] = []
        shown: list[str] = []
        for place, part in enumerate(content, start):
            self._notes.extras(part, self._path)
            text = getattr(part, self._texts.get(part.type, ""), None)
            if text is not None:
                said.append(text)
            elif images and (image := self._image(part, f"{where}[{place}]")) is not None:
                self.images.append(image)
                shown.append(image.sha256)
            else:
                raise BadAsk(f"a part {part.type!r} is not supported here", where=f"{where}[{place}]")
        return between.join(said), tuple(shown)
