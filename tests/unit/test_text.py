"""Words for people: what is hidden in them."""

import pytest

from supervise.text import redact


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
