"""Names that run as script, or mislead a reader, if a page shows them unescaped."""

INJECTIONS = (
    "<script>window.hacked=1</script>\"'>&lt;",
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "\u202egnp.exe\u2066",
    "{{ 7 * 7 }}${window.hacked=1}`",
)
