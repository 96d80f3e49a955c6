"""An HTML page as its tags, attributes and text, for tests of what a browser would make of it."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Every tag with its attributes in order, and the text that is seen."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.unclosed, self.texts = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, text):
        if "style" not in self.open:
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]

    def names(self):
        return {tag for tag, _ in self.tags}
