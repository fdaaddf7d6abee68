"""A FastAPI app with each kind of operation: a shop whose items have names, pictures and manuals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any, Literal

import pydantic
from fastapi import Cookie, FastAPI, File, Form, Header, HTTPException, Query, Request, Response, UploadFile

__all__ = ["PIXEL", "Item", "make_shop"]

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301"
    "0100c9fe92ef0000000049454e44ae426082"
)
"""A PNG of one pixel."""

_NONE: list[Any] = []


class Item(pydantic.BaseModel):
    """An item of the shop."""

    id: int
    name: str
    price: float | None = None
    parts: list[Item] = []


class Upload(pydantic.BaseModel):
    """What the shop got in a form."""

    title: str
    files: list[tuple[str | None, str | None, str]]


@cache
def make_shop() -> FastAPI:
    """Return the app. Its state says whether its lifespan runs, and which headers the last request had."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        app.state.life = "open"
        yield {"stock": {1: Item(id=1, name="Chair", parts=[Item(id=2, name="Leg")])}}
        app.state.life = "closed"

    app = FastAPI(title="Shop", version="1.2.3", lifespan=lifespan)

    @app.get("/items", tags=["items"])
    async def list_items(
        request: Request,
        response: Response,
        page: int | None = None,
        sizes: Annotated[list[int], Query()] = _NONE,
    ) -> list[Item]:
        """List the items, one a page."""
        page = page or 1
        if page < 3:
            following = request.url.include_query_params(page=page + 1)
            response.headers["Link"] = f'<{request.url}>; rel="self", <{following}>; rel="next"'
        return [Item(id=page, name=f"Item {page}", price=float(sum(sizes)))]

    @app.get("/items/{id}", tags=["items"])
    async def get_item(id: int, request: Request) -> Item:
        """Get an item."""
        item: Item | None = request.state.stock.get(id)
        if item is None:
            raise HTTPException(404, f"There is no item {id}.")
        return item

    @app.put("/items/{id}", tags=["items"])
    async def put_item(id: int, item: Item) -> dict[str, Any]:
        """Replace an item."""
        return {"path": id, "body": item.model_dump()}

    @app.delete("/items/{id}", status_code=204, tags=["admin"])
    async def delete_item(id: int) -> None:
        """Delete an item."""

    @app.get("/files/{folder}/{name}", tags=["files"])
    async def get_file(folder: str, name: str, request: Request) -> dict[str, str]:
        """Get a file."""
        return {"folder": folder, "name": name, "raw": request.scope["raw_path"].decode()}

    @app.get("/headers")
    async def show_headers(
        request: Request,
        x_trace: Annotated[str | None, Header()] = None,
        x_key: Annotated[str | None, Header()] = None,
        flavour: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, Any]:
        """Show the headers of the request."""
        app.state.headers = dict(request.headers)
        return {"trace": x_trace, "key": x_key, "flavour": flavour}

    @app.post("/login", operation_id="log/in")
    async def log_in(
        user: Annotated[str, Form()], roles: Annotated[list[str], Form()] = _NONE
    ) -> dict[str, Any]:
        """Log in with a form."""
        return {"user": user, "roles": roles}

    @app.post("/upload")
    async def upload(
        title: Annotated[str, Form()],
        manual: Annotated[UploadFile, File()],
        pictures: Annotated[list[UploadFile], File()] = _NONE,
    ) -> Upload:
        """Upload files."""
        read = [(file.filename, file.content_type, (await file.read()).hex()) for file in (manual, *pictures)]
        return Upload(title=title, files=read)

    @app.get("/picture", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    async def picture() -> Response:
        """Get a picture."""
        return Response(PIXEL, media_type="image/png")

    @app.get("/archive", response_class=Response)
    async def archive(size: int = 4) -> Response:
        """Get an archive."""
        return Response(b"\0" * size, media_type="application/zip")

    @app.get("/fail")
    async def fail(status: int, request: Request, kind: Literal["json", "html"] = "json") -> Response:
        """Fail with a status, and repeat the credentials as careless servers do."""
        text = f'{{"why": "no", "got": "{request.headers.get("authorization")}"}}'
        headers = {"Retry-After": "7"} if status == 429 else {}
        media_type = "application/json" if kind == "json" else "text/html"
        return Response(text, status, headers, media_type)

    @app.get("/moved")
    async def moved(to: str) -> Response:
        """Redirect to an address."""
        return Response(status_code=307, headers={"Location": to})

    @app.get("/breaks")
    async def breaks() -> None:
        """Raise an error."""
        raise RuntimeError("a secret of the app")

    return app
