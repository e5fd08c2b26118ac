"""Code and tables that are wider than the page can be scrolled with the keyboard."""


def setup(app):
    app.connect("html-page-context", make_focusable)
    return {"parallel_read_safe": True}


def make_focusable(app, page, template, context, doctree):
    """Only an element that can have the focus is scrolled by the arrow keys in every browser."""
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace(
        '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
    )
