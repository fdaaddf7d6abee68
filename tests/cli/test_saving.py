"""`--save` of `antiphon call` and `antiphon read`: names, folders, and files that exist already."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from antiphon.cli.catalog import resources
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.saving import Destination, File, file_name, file_of_contents
from antiphon.model.content import BlobContents, TextContents
from tests.cli.catalog_server import PNG
from tests.cli.command import antiphon
from tests.cli.test_catalog import run
from tests.client.fakes import Reply
from tests.hostile.hostile_server import hostile_server, scripted


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_saves_images_and_audio_and_prints_the_text(catalog_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "pictures"
    done = antiphon("call", catalog_url, "picture", "--save", f"{folder}/")
    assert (done.returncode, done.stdout) == (0, "Look:\n")
    assert done.stderr.splitlines() == [
        f"Saved {folder}/image.png (image/png, 100 bytes)",
        f"Saved {folder}/image-2.png (image/png, 100 bytes)",
        f"Saved {folder}/audio.wav (audio/wav, 12 bytes)",
    ]
    assert contents(folder) == {"image.png": PNG, "image-2.png": PNG, "audio.wav": b"RIFF0000WAVE"}


def test_files_are_replaced_only_with_force(catalog_url: str, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"mine")
    words = ("call", catalog_url, "picture", "--save", str(tmp_path))
    assert run(*words)[0] == 0
    assert contents(tmp_path) == {
        "image.png": b"mine",
        "image-2.png": PNG,
        "image-3.png": PNG,
        "audio.wav": b"RIFF0000WAVE",
    }
    # The second image does not replace the first one of the same result.
    assert run(*words, "--force", "--stream")[0] == 0
    assert {contents(tmp_path)[name] for name in ("image.png", "image-2.png", "image-3.png")} == {PNG}


def test_saves_all_parts_of_an_artifact_under_its_title(catalog_url: str, tmp_path: Path) -> None:
    code, output, messages = run("call", catalog_url, "history", "lines=150000", "--save", f"{tmp_path}/")
    assert (code, output.startswith("line 0\n")) == (0, True)
    assert "The-log-of-everything.txt (text/plain, 1649 KiB)" in messages
    whole = "".join(f"line {number}\n" for number in range(150_000)).encode()
    assert contents(tmp_path) == {"The-log-of-everything.txt": whole}
    uri = re.search(r"artifact://\S+", output)
    assert uri is not None
    code, output, messages = run("read", catalog_url, uri[0])
    assert f"The next part is '{uri[0]}?offset=" in messages
    assert run("read", catalog_url, uri[0], "--save", str(tmp_path / "whole"))[:2] == (0, "")
    assert (tmp_path / "whole").read_bytes() == whole


def test_parts_without_end_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MAX_PARTS", 5)
    numbers = itertools.count()

    async def part(reply: Reply) -> None:
        meta = {"next": f"a://b?{next(numbers)}"}
        await reply.result({"contents": [{"uri": "a://b", "text": "", "_meta": meta}]})

    with hostile_server(scripted({"resources/read": part}, resources={})) as server:
        code, output, messages = run("read", server.url, "a://b", "--save", str(tmp_path))
    assert (code, output) == (1, "")
    assert messages == "Error: The resource a://b is too large. Read it in parts.\n"
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("uri", ["x://../../a", "x://../..", "x:///etc/%2e%2e%2fpasswd", "x://a/.bashrc"])
def test_a_server_cannot_name_a_file_outside_of_the_folder(
    catalog_url: str, tmp_path: Path, uri: str
) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert run("call", catalog_url, "attach", f"uri={uri}", "--save", str(folder))[0] == 0
    (saved,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert saved.parent == folder
    assert not saved.name.startswith(".")


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    folder.mkdir()
    for force, name in ((False, "a-2.txt"), (True, "a.txt")):
        (folder / "a.txt").unlink(missing_ok=True)
        (folder / "a.txt").symlink_to(outside)
        Destination(str(folder), force=force).save([File("a", "text/plain", b"x")])
        assert (folder / name).read_bytes() == b"x"
        assert not outside.exists()


def test_one_file_gets_the_name_of_the_user(catalog_url: str, tmp_path: Path) -> None:
    path = str(tmp_path / "mine.dat")
    words = ("read", catalog_url, "pictures://logo", "--save", path)
    assert run(*words)[:2] == (0, "")
    code, output, messages = run(*words)
    assert (code, output, messages) == (
        2,
        "",
        f"Error: --save: {path} exists already. To replace it, add --force.\n",
    )
    assert run(*words, "--force")[0] == 0
    assert Path(path).read_bytes() == PNG
    # The text of the result is printed, although its files cannot be saved under one name.
    code, output, messages = run("call", catalog_url, "picture", "--save", str(tmp_path / "other"))
    assert (code, output) == (1, "Look:\n")
    assert "There are 3 files to save: name a folder" in messages


def test_writes_bytes_to_the_standard_output_alone(catalog_url: str) -> None:
    code, output, messages = run("read", catalog_url, "data://table.csv", "--save", "-")
    assert (code, output, messages) == (0, "a,b\n1,**2**\n", "")
    code, _, messages = run("read", catalog_url, "data://table.csv", "--save", "-", "--json")
    assert code == 2
    assert "--save - leaves no room for --json" in messages


def test_says_that_there_is_nothing_to_save(catalog_url: str, tmp_path: Path) -> None:
    code, output, messages = run("call", catalog_url, "say", "text=x", "--save", str(tmp_path))
    assert (code, output) == (0, "x\n")
    assert messages == "There is nothing to save: no images, audio, files or artifacts.\n"
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "mime_type", "expected"),
    [
        ("chart", "image/png", "chart.png"),
        ("chart.PNG", "image/png", "chart.PNG"),
        ("photo.jpeg", "image/jpeg", "photo.jpeg"),
        ("script.sh", "image/png", "script.sh.png"),
        ("today.md", "text/plain", "today.md"),
        ("table", "text/csv; charset=utf-8", "table.csv"),
        ("archive.tar.gz", "application/gzip", "archive.tar.gz"),
        ("v1.2", "application/x-unknown", "v1.2"),
        ("a/b\\c:d", "text/plain", "a-b-c-d.txt"),
        ("../../x", "", "x"),
        (".bashrc", "text/plain", "bashrc.txt"),
        ("-rf", "", "rf"),
        ("$(id) `id` ;\n\x1b[31m\u202e", "", "id-id-31m"),
        ("con", "text/plain", "_con.txt"),
        ("NUL.txt", "text/plain", "_NUL.txt"),
        ("..", "", "file"),
        ("", "", "file"),
        ("日" * 200, "text/plain", "日" * 40 + ".txt"),
    ],
)
def test_names_are_plain_file_names_with_the_suffix_of_the_type(
    name: str, mime_type: str, expected: str
) -> None:
    assert file_name(name, mime_type) == expected
    assert os.path.basename(expected) == expected


def test_contents_that_are_not_base64_are_an_error() -> None:
    with pytest.raises(CommandError, match="not valid base64"):
        file_of_contents([BlobContents("x://y", "A")])
    file = file_of_contents([TextContents("x://a?b=c", "1"), TextContents("x://a?b=d", "2")])
    assert (file.name, file.data) == ("a", b"12")


def test_a_destination_is_checked_before_the_server_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "none" / "x", "there is no folder"),
        (f"{tmp_path}/file/", "not a folder"),
    ):
        with pytest.raises(CommandError, match=said):
            Destination(str(path))
