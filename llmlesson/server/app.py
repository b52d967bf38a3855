"""The HTTP side: routes, streams, and what happens when a client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from llmlesson.errors import LessonError
from llmlesson.server.metrics import Metrics
from llmlesson.server.protocol import (
    CHAT,
    TEXT,
    ApiError,
    Call,
    parse_body,
    parse_call,
    parse_detokenize,
    parse_tokenize,
)
from llmlesson.server.reply import Choice, Reply
from llmlesson.server.sse import DONE, HEADERS, event
from llmlesson.server.worker import Job, Worker

MAX_BODY = 10_000_000  # bytes
RETRY_AFTER = {"Retry-After": "1"}


class Service:
    """The handlers of one server. queue: the most requests at once, running and waiting together."""

    def __init__(self, worker: Worker, queue: int, api_key: str | None) -> None:
        self.worker = worker
        self.metrics = Metrics(worker)
        self.draining = False
        self._queue = queue
        self._coming = 0  # requests that have a place in the queue and are still being tokenized
        self._api_key = api_key
        self._created = int(time.time())
        self._open: set[asyncio.Queue[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def app(self) -> Any:
        """The ASGI application. It expects an `AccessLog` around it."""
        routes = [
            Route("/v1/chat/completions", self._checked(self._chat), methods=["POST"]),
            Route("/v1/completions", self._checked(self._completions), methods=["POST"]),
            Route("/tokenize", self._checked(self._tokenize), methods=["POST"]),
            Route("/detokenize", self._checked(self._detokenize), methods=["POST"]),
            Route("/v1/models", self._checked(self._models)),
            Route("/v1/models/{name:path}", self._checked(self._model)),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
        ]
        handlers = {ApiError: _api_error, HTTPException: _http_error, Exception: _own_fault}
        return Starlette(routes=routes, exception_handlers=handlers)

    def end_streams(self) -> None:
        """Tell every open stream that the server is stopping. May be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell_all, RuntimeError("The server is shutting down."))

    def _tell_all(self, error: Exception) -> None:
        for queue in self._open:
            queue.put_nowait(error)

    def _checked(self, handler: Callable[[HttpRequest], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        async def checked(http: HttpRequest) -> Response:
            if self._api_key is not None:
                given = http.headers.get("authorization", "").removeprefix("Bearer ")
                if not secrets.compare_digest(given.encode(), self._api_key.encode()):
                    raise ApiError(
                        401, "The API key is missing or wrong.", "authentication_error", code="invalid_api_key"
                    )
            return await handler(http)

        return checked

    async def _chat(self, http: HttpRequest) -> Response:
        return await self._complete(http, CHAT)

    async def _completions(self, http: HttpRequest) -> Response:
        return await self._complete(http, TEXT)

    async def _complete(self, http: HttpRequest, kind: str) -> Response:
        self._loop = asyncio.get_running_loop()
        call = parse_call(parse_body(await _body(http)), kind, self.worker.backend.model)
        if self.draining:
            raise ApiError(503, "This server is shutting down.", "server_error", headers=RETRY_AFTER)
        coming = len(call.prompts) * call.n
        if len(self.worker) + self._coming + coming > self._queue:
            raise ApiError(429, "The queue is full.", "rate_limit_error", code="queue_full", headers=RETRY_AFTER)
        self._coming += coming
        try:
            jobs, queue = await self._submit(call, _salt(http))
        finally:
            self._coming -= coming
        prompts = jobs[:: call.n]
        reply = Reply(call, self.worker.backend.model, sum(len(job.request.ids) for job in prompts))
        http.scope["access"].jobs = jobs
        if call.stream:
            return _Stream(self, self._events(reply, jobs, queue), jobs, queue)
        return await self._whole(http, reply, jobs, queue)

    async def _submit(self, call: Call, salt: str) -> tuple[list[Job], asyncio.Queue[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(job: Job, news: Any) -> None:
            if isinstance(news, Exception):
                self.metrics.ended(job, "error")
            with contextlib.suppress(RuntimeError):  # the loop has closed, so nobody is listening
                loop.call_soon_threadsafe(queue.put_nowait, news if isinstance(news, Exception) else (job, news))

        try:
            # Tokenizing a long prompt takes a while, and the loop must serve other clients meanwhile.
            requests = await to_thread.run_sync(self.worker.backend.requests, call)
            jobs = [Job(request, tell) for request in requests]
            self.worker.submit(jobs, salt)
        except LessonError as error:
            raise ApiError(400, str(error), param="messages" if call.kind == CHAT else "prompt") from None
        self._open.add(queue)
        return jobs, queue

    async def _events(self, reply: Reply, jobs: list[Job], queue: asyncio.Queue[Any]) -> AsyncIterator[bytes]:
        choices = self._choices(reply.call, jobs)
        running = len(jobs)
        while running:
            news = await queue.get()
            if isinstance(news, Exception):
                yield event({"error": {"message": str(news), "type": "server_error", "param": None, "code": None}})
                break
            job, step = news
            reply.completion_tokens += 1
            choices[job].add(step)
            if step.finish_reason:
                running -= 1
                self.metrics.ended(job, step.finish_reason)
            for chunk in reply.chunks(choices[job]):
                yield event(chunk)
        else:
            if reply.call.include_usage:
                yield event(reply.usage_chunk())
        yield DONE

    async def _whole(self, http: HttpRequest, reply: Reply, jobs: list[Job], queue: asyncio.Queue[Any]) -> Response:
        choices = self._choices(reply.call, jobs)
        gone = asyncio.ensure_future(_disconnected(http))
        try:
            while not all(choice.finish_reason for choice in choices.values()):
                next_news = asyncio.ensure_future(queue.get())
                await asyncio.wait({next_news, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not next_news.done():
                    next_news.cancel()
                    raise ClientDisconnect
                if isinstance(news := next_news.result(), Exception):
                    raise ApiError(500, str(news), "server_error")
                job, step = news
                choices[job].add(step)
                reply.completion_tokens += 1
                if step.finish_reason:
                    self.metrics.ended(job, step.finish_reason)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        finally:
            gone.cancel()
            self.leave(jobs, queue)
        return JSONResponse(reply.whole(list(choices.values())))

    def _choices(self, call: Call, jobs: list[Job]) -> dict[Job, Choice]:
        backend = self.worker.backend
        echoed = [backend.text(prompt) if call.echo else "" for prompt in call.prompts for _ in range(call.n)]
        return {
            job: Choice(call, index, text, backend.token_bytes)
            for index, (job, text) in enumerate(zip(jobs, echoed, strict=True))
        }

    async def _tokenize(self, http: HttpRequest) -> Response:
        backend = self.worker.backend
        prompt, chat, special, names = parse_tokenize(parse_body(await _body(http)), backend.model)
        try:
            ids = await to_thread.run_sync(backend.tokenize, prompt, chat, special)
            strings = [backend.token_bytes(token).decode("utf-8", "replace") for token in ids] if names else None
        except LessonError as error:
            raise ApiError(400, str(error), param="messages" if chat else "prompt") from None
        counts = {"count": len(ids), "max_model_len": backend.context}
        return JSONResponse({**counts, "tokens": ids, "token_strs": strings})

    async def _detokenize(self, http: HttpRequest) -> Response:
        backend = self.worker.backend
        ids = parse_detokenize(parse_body(await _body(http)), backend.model)
        try:
            return JSONResponse({"prompt": await to_thread.run_sync(backend.detokenize, ids)})
        except LessonError as error:
            raise ApiError(400, str(error), param="tokens") from None

    def leave(self, jobs: list[Job], queue: asyncio.Queue[Any]) -> None:
        """The client of these jobs has gone: cancel those that still run."""
        self._open.discard(queue)
        for job in jobs:
            if self.worker.cancel([job]):
                self.metrics.ended(job, "abort")

    async def _models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def _model(self, http: HttpRequest) -> Response:
        name = http.path_params["name"]
        if name != self.worker.backend.model:
            raise ApiError(404, f"There is no model {name!r} here.", param="model", code="model_not_found")
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, Any]:
        backend = self.worker.backend
        return {
            "id": backend.model,
            "object": "model",
            "created": self._created,
            "owned_by": "llmlesson",
            "max_model_len": backend.context,
        }

    async def _health(self, http: HttpRequest) -> Response:
        return JSONResponse({"status": "draining" if self.draining else "ok"}, 503 if self.draining else 200)

    async def _metrics(self, http: HttpRequest) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Stream(StreamingResponse):
    """Ends the requests behind a stream whatever happens to it, even before its first event."""

    def __init__(self, service: Service, events: AsyncIterator[bytes], jobs: list[Job], queue: Any) -> None:
        super().__init__(events, headers=HEADERS)
        self._service, self._jobs, self._queue = service, jobs, queue

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.leave(self._jobs, self._queue)


async def _body(http: HttpRequest) -> bytes:
    declared = http.headers.get("content-length", "0")
    parts, size = [], 0
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise ApiError(413, f"The body is larger than {MAX_BODY:,} bytes.")
    async for part in http.stream():
        size += len(part)
        if size > MAX_BODY:
            raise ApiError(413, f"The body is larger than {MAX_BODY:,} bytes.")
        parts.append(part)
    return b"".join(parts)


async def _disconnected(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _salt(http: HttpRequest) -> str:
    """Clients with different keys share no blocks of the cache: response times would reveal what others have asked."""
    return hashlib.sha256(http.headers.get("authorization", "").encode()).hexdigest()


async def _api_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = ApiError(error.status_code, f"{http.method} {http.url.path}: {error.detail}.")
    return JSONResponse(told.body, error.status_code, headers=error.headers)


async def _own_fault(http: HttpRequest, error: Exception) -> Response:
    told = ApiError(500, f"The server failed: {type(error).__name__}: {error}", "server_error")
    return JSONResponse(told.body, 500)
