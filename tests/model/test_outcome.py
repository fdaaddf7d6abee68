"""The results that authors create."""

from __future__ import annotations

from antiphon import Image, Result


def test_next_steps_are_the_last_paragraph_of_the_text() -> None:
    assert Result("Done.", next_steps=["Rest."]).text == "Done.\n\n**Next step:** Rest."
    assert Result("Done.", next_steps=["Rest.", "Eat."]).text == "Done.\n\n**Next steps:**\n\n- Rest.\n- Eat."


def test_next_steps_after_an_image_are_a_text_block() -> None:
    picture = Image.of(b"\x89PNG", "image/png")
    result = Result(picture, next_steps=["Look."])
    assert result.content[0] == picture
    assert result.text == "**Next step:** Look."
    assert Result([], next_steps=["Look."]).text == "**Next step:** Look."
