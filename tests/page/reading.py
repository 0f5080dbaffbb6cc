"""A page as a reader's program meets it: elements, names, words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
FETCHING = {"src", "href", "xlink:href", "srcset", "data", "poster", "action", "background"}


@dataclass
class Element:
    """One element, with the words directly in it."""

    tag: str
    attributes: dict[str, str]
    inside: tuple[str, ...]
    words: str = ""


@dataclass
class Page(HTMLParser):
    """What a page holds; `faults` are end tags that close nothing, and elements left open."""

    text: str
    elements: list[Element] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()
        self.faults += [f"<{element.tag}> left open" for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside = tuple(element.tag for element in self._open)
        element = Element(tag, {name: value or "" for name, value in attrs}, inside)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1].tag == tag:
            self._open.pop()
        else:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].words += data

    def all(self, tag: str, *, inside: str | None = None) -> list[Element]:
        """The elements of a name, in order."""
        found = [element for element in self.elements if element.tag == tag]
        return [element for element in found if inside is None or inside in element.inside]

    def words(self, tag: str) -> list[str]:
        """The words of each element of a name."""
        return [" ".join(element.words.split()) for element in self.all(tag)]

    @property
    def by_id(self) -> dict[str, Element]:
        return {e.attributes["id"]: e for e in self.elements if "id" in e.attributes}

    @property
    def references(self) -> list[str]:
        """What a browser might fetch: every attribute that leads anywhere, every url()."""
        led = [
            value
            for element in self.elements
            for name, value in element.attributes.items()
            if name in FETCHING
        ]
        return led + re.findall(r"url\(\s*['\"]?([^'\")]*)", self.text) + self._imports

    @property
    def _imports(self) -> list[str]:
        return re.findall(r"@import[^;]*", self.text)

    def described(self, svg: Element) -> tuple[str, str]:
        """Title and description that a drawing names as its own."""
        title, desc = svg.attributes["aria-labelledby"].split()
        return self.by_id[title].words, self.by_id[desc].words
