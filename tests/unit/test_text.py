"""Words for people: what is hidden in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.text import hides, redact, settings, without_passwords


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-k", "sek", "--port", "1"], ["--api-k", "***", "--port", "1"]),
        (["--api-key", "a", "b", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api-key", "-a", "-b", "c"], ["--api-key", "***", "-b", "c"]),
        (["--api-key=sek"], ["--api-key=***"]),
        (["--admin-api", "sek"], ["--admin-api", "***"]),
        (["--ssl-keyfile-pass", "sek"], ["--ssl-keyfile-pass", "***"]),
        (["--ssl-keyfile", "/k"], ["--ssl-keyfile", "/k"]),
        (["--api-server-count", "2"], ["--api-server-count", "2"]),
        (["--hf-token", "sek", "--hf_token=sek"], ["--hf-token", "***", "--hf_token=***"]),
        (["HF_TOKEN=sek", "AWS_SESSION_TOKEN=sek"], ["HF_TOKEN=***", "AWS_SESSION_TOKEN=***"]),
        (["--max-num-batched-tokens", "8192"], ["--max-num-batched-tokens", "8192"]),
        (["--tokenizer", "T", "--tokenizer-mode=auto"], ["--tokenizer", "T", "--tokenizer-mode=auto"]),
        (["--long-prefill-token-threshold", "9"], ["--long-prefill-token-threshold", "9"]),
        (["TOKENIZERS_PARALLELISM=false"], ["TOKENIZERS_PARALLELISM=false"]),
    ],
)
def test_secrets_are_hidden_also_behind_the_beginning_of_their_flag(words, shown):
    assert redact(words) == shown


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("https://ann:s3cret@host/x", "https://ann:***@host/x"),
        ("--url=redis://:s3cret@host:6379/0", "--url=redis://:***@host:6379/0"),
        ("s3://ann:s3@cret@bucket/key", "s3://ann:***@bucket/key"),
        ('{"a": "redis://h:1", "b": "amqp+ssl://u:s3cret@h"}', '{"a": "redis://h:1", "b": "amqp+ssl://u:***@h"}'),
        ("http://a:s3cret@h,http://b:s3cret@h", "http://a:***@h,http://b:***@h"),
        ("git+https://s3cret@host/x", "git+https://***@host/x"),
        # No user, no password: nothing is changed.
        ("git+https://host/x@v1.0", "git+https://host/x@v1.0"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("http://127.0.0.1:8000/a@b:c", "http://127.0.0.1:8000/a@b:c"),
        ('["http://h:80", "ann@host"]', '["http://h:80", "ann@host"]'),
        ("ann:pass@host", "ann:pass@host"),
    ],
)
def test_a_password_in_a_url_is_hidden_wherever_it_stands(word, shown):
    assert redact(["vllm", word]) == ["vllm", shown]
    assert redact(["--url", word]) == ["--url", shown]
    assert settings({"HF_ENDPOINT": word}) == {"HF_ENDPOINT": shown}
    assert hides(shown) == (word != shown)


_LETTERS = st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_characters='/?#"').filter(
    lambda letter: not letter.isspace()
)


@given(
    scheme=st.from_regex(r"\A[a-z][a-z0-9+.-]{0,9}\Z"),
    user=st.from_regex(r"\A[A-Za-z0-9._~%-]{0,8}\Z"),
    password=st.text(_LETTERS, min_size=1),
    before=st.sampled_from(["", "--url=", "x,", '{"a":"', "("]),
    after=st.sampled_from(["", "/p?q#f", ":6379/0", '"}', " y@z"]),
)
def test_no_password_of_a_url_is_ever_shown(scheme, user, password, before, after):
    word = f"{before}{scheme}://{user}:{password}@host{after}"
    (shown,) = redact([word])
    assert shown == f"{before}{scheme}://{user}:***@host{after}"
    assert redact([shown]) == [shown]


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_what_is_no_url_stays(text):
    assert without_passwords(text.replace("://", ":")) == text.replace("://", ":")


def test_what_is_swept_is_no_way_around() -> None:
    given = ["try", "--set", "env:HF_TOKEN=a,b", "--set", "api-key=c,d", "--set", "max-num-seqs=1,2"]
    assert redact(given) == ["try", "--set", "env:HF_TOKEN=***", "--set", "api-key=***", "--set", "max-num-seqs=1,2"]
    assert redact(["--set=env:HF_TOKEN=a"]) == ["--set=env:HF_TOKEN=***"]
