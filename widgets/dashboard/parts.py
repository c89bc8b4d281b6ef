"""What a page is made of in the browser: pictures, and the bar above them."""

from __future__ import annotations

from typing import Any, ClassVar

import param
from panel.custom import AnyWidgetComponent
from panel.theme import Design, Theme

from widgets.browser import bar_esm, esm


class Bare(Design):
    """No style of Panel's."""

    _themes: ClassVar[dict[str, type[Theme]]] = {"default": Theme, "dark": Theme}


class Part(AnyWidgetComponent):
    """As wide as there is room, and only with its own style.

    Panel's style sheets are addressed when a page is asked for; a browser that takes its time to
    open the websocket would be sent elsewhere for them.
    """

    __abstract = True

    design = param.ClassSelector(default=Bare, class_=Design, is_instance=False)

    def __init__(self, **values: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            sizing_mode="stretch_width", **values
        )

    def _process_param_change(self, params: dict[str, Any]) -> dict[str, Any]:
        properties: dict[str, Any]
        properties = super()._process_param_change(params)  # type: ignore[no-untyped-call]
        if "stylesheets" in properties:
            properties["stylesheets"] = []
        return properties


class PictureView(Part):
    """A picture, drawn by the module that draws it in notebooks."""

    _esm = esm()

    picture = param.String(doc="JSON of a :class:`widgets.pictures.picture.Picture`.")
    window = param.Dict(default={}, doc="See :func:`widgets.windows.window_of`.")
    selected = param.String(doc="What was clicked.")
    asked = param.Dict(default={}, doc="What is in the picture's own fields, by name; all text.")
    paused = param.Boolean(default=False, doc="Whether the reader keeps it still.")


class Bar(Part):
    """What is wrong, what can be searched and sorted, what can be taken away."""

    _esm = bar_esm()

    notice = param.Dict(default={}, doc="``text``, and ``tone``: empty or ``bad``.")
    fields = param.List(default=[], doc="See :class:`widgets.dashboard.fields.Field`.")
    values = param.Dict(default={}, doc="What is in the fields, by name; all are text.")
    note = param.Dict(default={}, doc="``text`` beside the pages, and the ``last`` page.")
    links = param.List(default=[], doc="Downloads: ``label`` and ``href``.")
    hidden = param.Boolean(default=False, doc="Whether the page is not seen by anybody.")
