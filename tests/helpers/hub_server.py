"""A server on loopback with as much of the hub's HTTP API as pushing and loading need.

It checks what the hub checks: the token, hashes and sizes of large files, the metadata of cards,
and that a commit names only files that were uploaded.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_secretOfTheTest0123456789"  # noqa: S105 - of this server only
LARGE = (".safetensors", ".zip", ".png", ".parquet")
"""Names of files that are stored as large files."""
LICENSES = ("apache-2.0", "mit", "other", "cc-by-4.0", "llama3.2", "gemma")
REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
KIND = r"(?P<kind>model|dataset)s"


@dataclass
class Repo:
    kind: str
    private: bool
    gated: bool = False
    """Listed to everyone, but files only go to TOKEN."""
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)

    @property
    def sha(self) -> str:
        return hashlib.sha256(repr(self.commits).encode()).hexdigest()[:40]

    def metadata(self) -> dict[str, Any]:
        return metadata(self.files.get("README.md", b"").decode())


@dataclass
class Hub:
    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and authorization of every request."""
    broken: str = ""
    """Paths with this text in them answer 500."""
    moved: dict[str, str] = field(default_factory=dict)
    """New names of renamed repositories, by their old names."""
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes after which the connection is closed, once, by file."""
    served: dict[str, bytes] = field(default_factory=dict)
    """What is sent instead of a file's bytes, by file."""
    archives: dict[str, bytes] = field(default_factory=dict)
    """Files at /archives/NAME."""

    def add(self, name: str, files: dict[str, bytes], kind: str = "model", private=False) -> Repo:
        repo = self.repos[f"{kind}s/{name}"] = Repo(
            kind, private, files=dict(files), commits=["first"]
        )
        return repo


def metadata(text: str) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return (yaml.safe_load(found[1]) or {}) if found else {}


def faults(kind: str, text: str) -> list[str]:
    """What the hub would reject in a card."""
    data = metadata(text)
    results = [result for one in data.get("model-index", []) for result in one["results"]]
    relations = (None, "adapter", "finetune", "merge", "quantized")
    checks = {
        "no metadata": not data,
        f'"license" must be one of {LICENSES}': data.get("license") not in (None, *LICENSES),
        '"base_model" is no repository': not re.fullmatch(
            r"[\w.-]+/[\w.-]+", str(data.get("base_model", "a/b"))
        ),
        '"base_model_relation" is unknown': data.get("base_model_relation") not in relations,
        '"tags" must be strings': not all(isinstance(tag, str) for tag in data.get("tags", [])),
        '"model-index" has an incomplete result': not all(
            {"task", "dataset", "metrics"} <= set(result) for result in results
        ),
        '"configs" is incomplete': kind == "dataset"
        and not all({"config_name", "data_files"} <= set(one) for one in data.get("configs", [])),
    }
    return [fault for fault, found in checks.items() if found]


def blob(name: str, raw: bytes) -> dict[str, Any]:
    """Size and hashes of a file, as the hub lists them."""
    git = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()  # noqa: S324 - as git does
    found: dict[str, Any] = {"size": len(raw), "blobId": git}
    if name.endswith(LARGE):
        sha256 = hashlib.sha256(raw).hexdigest()
        found["lfs"] = {"sha256": sha256, "size": len(raw), "pointerSize": 130}
    return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.seen.append((method, self.path, self.headers.get("Authorization", "")))
        self.body = self._body()
        if self.hub.broken and self.hub.broken in path:
            self._send(500, {"error": "broken on purpose"})
            return
        for verb, pattern, handler, public in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method in verb:
                if not public and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self._send(401, {"error": "Invalid credentials"})
                else:
                    handler(self, **found.groupdict())
                return
        self._send(404, {"error": f"no such path {path}"})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, code: int, data: Any = None, headers: dict[str, str] | None = None) -> None:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        if code == 401:
            self.send_header("X-Error-Message", "Invalid credentials")
        if code == 404 and "X-Error-Code" not in (headers or {}):
            self.send_header("X-Error-Code", "EntryNotFound" if "resolve" in self.path else "")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _repo(self, kind: str, repo: str) -> Repo | None:
        if repo in self.hub.moved:
            place = self.path.replace(repo, self.hub.moved[repo], 1)
            self._send(307, {}, {"Location": f"{self.hub.url}{place}"})
            return None
        found = self.hub.repos.get(f"{kind}s/{repo}")
        may_read = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if found is None or (found.private and not may_read):
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            self._send(404, {"error": "Repository not found"}, headers)
            return None
        return found

    # Repositories ---------------------------------------------------------------------------------

    def create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        kind = asked.get("type", "model")
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        prefix = "datasets/" if kind == "dataset" else ""
        answer = {"url": f"{self.hub.url}/{prefix}{name}", "name": name, "id": "1"}
        if f"{kind}s/{name}" in self.hub.repos:
            self._send(409, {"error": "You already created this repo", **answer})
            return
        self.hub.repos[f"{kind}s/{name}"] = Repo(
            kind, private, files={".gitattributes": b""}, commits=["first"]
        )
        self._send(200, answer)

    def info(self, kind: str, repo: str, revision: str | None = None) -> None:
        found = self._repo(kind, repo)
        if found is not None:
            card = found.metadata()
            if revision not in (None, "main", found.sha):
                self._send(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
                return
            with_blobs = "blobs=" in self.path
            siblings = [
                {"rfilename": name, **(blob(name, raw) if with_blobs else {})}
                for name, raw in found.files.items()
            ]
            answer = {"_id": "1", "id": repo, "modelId": repo, "sha": found.sha}
            answer |= {"private": found.private, "siblings": siblings, "tags": card.get("tags", [])}
            self._send(200, {**answer, **({"cardData": card} if card else {}), "downloads": 0})

    def validate(self) -> None:
        asked = json.loads(self.body)
        wrong = [{"message": fault} for fault in faults(asked["repoType"], asked["content"])]
        self._send(400 if wrong else 200, {"errors": wrong, "warnings": []})

    # Upload ---------------------------------------------------------------------------------------

    def preupload(self, kind: str, repo: str, revision: str) -> None:
        if self._repo(kind, repo) is not None:
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for one in json.loads(self.body)["files"]
            ]
            self._send(200, {"files": files})

    def batch(self, repo: str, prefix: str | None = None) -> None:
        objects = []
        for one in json.loads(self.body)["objects"]:
            upload = {"href": f"{self.hub.url}/storage/{one['oid']}"}
            known = one["oid"] in self.hub.blobs
            objects.append({**one, **({} if known else {"actions": {"upload": upload}})})
        self._send(200, {"transfer": "basic", "objects": objects})

    def store(self, oid: str) -> None:
        right = hashlib.sha256(self.body).hexdigest() == oid
        if right:
            self.hub.blobs[oid] = self.body
        self._send(200 if right else 400, {})

    def commit(self, kind: str, repo: str, revision: str) -> None:
        import base64

        found = self._repo(kind, repo)
        if found is None:
            return
        header, *operations = map(json.loads, self.body.splitlines())
        new = {}
        for one in operations:
            value = one["value"]
            if one["key"] == "file":
                new[value["path"]] = base64.b64decode(value["content"])
            else:
                assert one["key"] == "lfsFile", one
                blob = self.hub.blobs.get(value["oid"])
                if blob is None or len(blob) != value["size"]:
                    self._send(400, {"error": f"{value['path']} was not uploaded"})
                    return
                new[value["path"]] = blob
        found.files |= new
        found.commits.append(header["value"]["summary"])
        url = f"{self.hub.url}/{repo}/commit/{found.sha}"
        self._send(200, {"success": True, "commitOid": found.sha, "commitUrl": url})

    # Download -------------------------------------------------------------------------------------

    def resolve(self, repo: str, revision: str, path: str, prefix: str | None = None) -> None:
        found = self._repo("dataset" if prefix else "model", repo)
        if found is None:
            return
        if path not in found.files:
            self._send(404, {"error": "Entry not found"}, {"X-Repo-Commit": found.sha})
            return
        if found.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}
            self._send(403, {"error": "Access is restricted"}, headers)
            return
        raw = self.hub.served.get(path, found.files[path])
        tag = hashlib.sha256(raw).hexdigest()
        self._send_file(path, raw, {"ETag": f'"{tag}"', "X-Repo-Commit": found.sha})

    def _send_file(self, path: str, raw: bytes, headers: dict[str, str]) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(raw) - 1}/{len(raw)}"
        end = self.hub.cut.pop(path, None) if self.command == "GET" else None
        if end is None:
            self._send(206 if first else 200, raw[first:], headers)
            return
        self.send_response(206 if first else 200)
        for name, value in {**headers, "Content-Length": str(len(raw) - first)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw[first:end])
        self.close_connection = True

    def archive(self, name: str) -> None:
        self._send(200, self.hub.archives[name], {"Content-Type": "application/zip"})


ROUTES: tuple[tuple[tuple[str, ...], str, Any, bool], ...] = (
    (("POST",), "/api/repos/create", Handler.create, False),
    (("POST",), "/api/validate-yaml", Handler.validate, True),
    (("GET",), rf"/api/{KIND}/{REPO}", Handler.info, True),
    (("GET",), rf"/api/{KIND}/{REPO}/revision/(?P<revision>.+)", Handler.info, True),
    (("POST",), rf"/api/{KIND}/{REPO}/preupload/(?P<revision>.+)", Handler.preupload, False),
    (("POST",), rf"/api/{KIND}/{REPO}/commit/(?P<revision>.+)", Handler.commit, False),
    (
        ("POST",),
        rf"/(?P<prefix>datasets/)?{REPO}\.git/info/lfs/objects/batch",
        Handler.batch,
        False,
    ),
    (("GET",), "/archives/(?P<name>.+)", Handler.archive, True),
    (("PUT",), "/storage/(?P<oid>[0-9a-f]{64})", Handler.store, True),
    (
        ("GET", "HEAD"),
        rf"/(?P<prefix>datasets/)?{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)",
        Handler.resolve,
        True,
    ),
)


@contextmanager
def hub_running() -> Iterator[Hub]:
    """A hub without repositories."""
    hub = Hub()
    handler = type("Bound", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
