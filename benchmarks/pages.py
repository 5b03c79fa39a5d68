"""What scripts write into pages: tables, between marks."""


def table(head, lines):
    """Return a table as Markdown."""
    parts = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, part)) + " |" for part in parts)


def fill(path, title, parts):
    """Put each part into its place of a page, or at the end where it has none."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"# {title}\n"
    for name, text in parts.items():
        start, end = f"<!-- made: {name} -->", "<!-- end -->"
        if start not in page:
            print(f"{path} had no place {start}: it is at the end now.")
            page += f"\n{start}\n{end}\n"
        before, _, after = page.partition(start)
        page = f"{before}{start}\n\n{text}\n\n{end}{after.partition(end)[2]}"
    path.write_text(page, encoding="utf-8")
