"""Secrets never leave, and the words of a training log do. No secret here was ever valid."""

from __future__ import annotations

import json
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postmortem.privacy.redact import MARK, Redactor

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def chars(alphabet: str, n: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=n))


def forms(seed: int) -> dict[str, tuple[str, str]]:
    """Return one secret of each form, and the line it stands in.
    Put together here, so that no scanner finds one in this file."""
    r = random.Random(seed)

    def some(n: int, alphabet: str = ALNUM) -> str:
        return "".join(r.choices(alphabet, k=n))

    word = some(6) + "7x" + some(8)
    upper = string.ascii_uppercase + "234567"
    jwt = f"eyJ{some(20)}.eyJ{some(40)}.{some(43)}"
    secrets = {
        "hf-token": ("hf_" + some(34), "huggingface_hub.errors.HfHubHTTPError: 401 for token {}"),
        "aws-key-id": ("AKIA" + some(16, upper), "botocore: key {} is not authorized"),
        "aws-secret": (some(40, ALNUM + "/+"), "aws_secret_access_key = {}"),
        "aws-session": (some(200, ALNUM + "/+"), 'export AWS_SESSION_TOKEN="{}"'),
        "gcp-key": ("AIza" + some(35), "https://maps.example/api?key={}"),
        "gcp-token": ("ya29." + some(60), "access {} expired"),
        "github": ("ghp_" + some(36), "git clone https://{}@github.com/x/y.git"),
        "github-pat": ("github_pat_" + some(22) + "_" + some(59), "remote: {}"),
        "gitlab": ("glpat-" + some(20), "PRIVATE-TOKEN: {}"),
        "openai": ("sk-proj-" + some(48), "openai.AuthenticationError: Incorrect API key provided: {}."),
        "openai-old": ("sk-" + some(48), "{}"),
        "anthropic": ("sk-ant-api03-" + some(90), "ANTHROPIC {}"),
        "wandb": (some(40, HEX), "wandb: key: {}"),
        "wandb-env": (some(40, HEX), "WANDB_API_KEY={}"),
        "wandb-login": (some(40, HEX), 'wandb.login(key="{}")'),
        "wandb-netrc": (some(40, HEX), "machine api.wandb.ai login user password {}"),
        "bearer": (some(30), "Authorization: Bearer {}"),
        "bearer-json": (some(30), '{{"headers": {{"authorization": "Bearer {}"}}}}'),
        "basic": (some(24) + "==", "> Authorization: Basic {}"),
        "url": (word, "psycopg2: could not connect to postgresql://train:{}@db.example:5432/runs"),
        "redis": (word, "redis://:{}@10.0.0.1:6379/0"),
        "jwt": (jwt, "token expired: {}"),
        "slack": ("xoxb-" + some(12, string.digits) + "-" + some(24), "slack {}"),
        "slack-hook": (f"T{some(8)}/B{some(8)}/{some(24)}", "POST https://hooks.slack.com/services/{}"),
        "sas": (some(43) + "%3D", "https://a.blob.core.windows.net/c/ckpt?sv=2022&sig={}&se=2026"),
        "presigned": (some(64, HEX), "GET https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature={}"),
        "azure": (some(86) + "==", "DefaultEndpointsProtocol=https;AccountKey={};EndpointSuffix=core"),
        "password": (word, "password={}"),
        "password-yaml": (word, "  db_password: '{}'"),
        "password-json": (word, '{{"user": "x", "password": "{}"}}'),
        "password-escaped": (word, '{{"args": "{{\\"password\\": \\"{}\\"}}"}}'),
        "passphrase": (word, 'PASSPHRASE = "{}"'),
        "flag": (word, "torchrun train.py --hf_token {} --lr 1e-4"),
        "flag-is": (word, "python train.py --api-key={}"),
        "flag-list": (word, "['train.py', '--password', '{}', '--lr', '1e-4']"),
        "plain-token-flag": (word, "train.py --token {}"),
        "env": (word, "MY_SERVICE_API_KEY={}"),
        "env-token": (word, "declare -x HUGGING_FACE_HUB_TOKEN={}"),
        "secret": (word, "client_secret: {}"),
        "bare-token": (some(10) + "9z" + some(20), 'token="{}"'),
        "rank-prefix": (word, "[rank3]:   password={}, host=db"),
    }
    return {name: (secret, line.format(secret)) for name, (secret, line) in secrets.items()}


@pytest.mark.parametrize("name", forms(1))
@pytest.mark.parametrize("seed", range(1, 11))
def test_every_form_of_secret_is_found(name: str, seed: int) -> None:
    secret, line = forms(seed)[name]
    clean = Redactor().text(line)
    assert secret not in clean and MARK.search(clean), clean
    assert len(MARK.findall(clean)) == 1, clean
    before, after = line.split(secret)
    assert clean.startswith(before[:20]) and clean.endswith(after[-10:]), "what stands around it is kept"


PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"
BODY = [chars(ALNUM + "+/", 64, n) for n in range(24)] + [chars(ALNUM, 18, 99) + "=="]


def gone(body: list[str], text: str) -> bool:
    return not any(line in text for line in body)


def test_private_keys_whole_cut_and_prefixed() -> None:
    whole = PEM.format("\n".join(BODY))
    assert gone(BODY, Redactor().text(whole))
    assert Redactor().text(whole).count("[REDACTED:private-key:1]") == len(BODY)
    assert gone(BODY, Redactor().text("\n".join("[rank0]: " + line for line in whole.split("\n"))))
    cut = "\n".join(whole.split("\n")[:12])
    assert gone(BODY, Redactor().text(cut + "\nTraceback (most recent call last):\n")), "END is cut off"
    assert "Traceback" in Redactor().text(cut + "\nTraceback (most recent call last):\n")
    assert gone(BODY, Redactor().text("\n".join(whole.split("\n")[5:]))), "BEGIN is cut off"
    escaped = json.dumps({"private_key": whole})
    assert gone(BODY, Redactor().text(escaped))


def test_a_key_over_several_lines_of_a_context() -> None:
    lines = PEM.format("\n".join(BODY)).split("\n")
    clean = Redactor().document({"context": {"before": lines[:9], "after": lines[9:]}})
    assert gone(BODY, json.dumps(clean))
    assert isinstance(clean, dict) and [len(part) for part in clean["context"].values()] == [
        9,
        len(lines) - 9,
    ]


ORDINARY = """\
2026-11-20 21:03:41,633 INFO [rank1] train: step 12 loss 0.2513 tokens: 12345 tokens/s: 1.2e6 max_tokens=4096 num_tokens=81920
tokenizer=LlamaTokenizer pad_token='<pad>' eos_token="</s>" bos_token=<s> unk_token=[UNK]
mask_token=<mask> pad_token_id=50256 add_eos_token=True
KeyError: 'model.layers.11.self_attn.q_proj.weight'
KeyError: 'token'
vm:23887:23990 [0] NCCL INFO ncclCommInitRank comm 0x55d2c0 rank 3 nranks 8 cudaDev 3 busId ca000 commId 0x8a1f3c5d7e9b0a2c - Init COMPLETE
commit 3f786850e387550fdab836ed7e6dc881de23001b (HEAD -> main)
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 pulled
wandb: Run data is saved locally in /x/wandb/run-20261120_210341-3f786850e387550fdab836ed7e6dc881de23001b
wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin
Ray commit: b7f4259e944bf6959f721b106adc366ddfa0c356
Setting cluster ID to: ce77a28893c69a0f018b41e5f88760bbda4699b947711bccc3397cbc
2026-11-20 22:33:10,586	WARNING authentication_token_setup.py:85 -- Token authentication is enabled for this Ray cluster.
    def login(token: Optional[str] = None, password: str = None, api_key=os.environ["OPENAI_API_KEY"]) -> None:
    return Client(api_key=self.api_key, password=args.password, token=token, secret=config.secret)
usage: train.py [-h] [--token TOKEN] [--hf_token HF_TOKEN] [--password PASSWORD] [--api-key API_KEY]
  --token TOKEN  the token to use; --max-token 2048 --pad-token <pad> --eos-token </s> --use_auth_token True
ValueError: password: must not be empty
export HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${WANDB_API_KEY} password=*** api_key=<redacted> secret=None token=null
Connecting to tcp://10.0.0.1:29500 via env://?rank=0&world_size=8 and file:///tmp/store at user@node-a:22
[rank1]:[E1118 20:32:23.955 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2635)
[mpi] task-0123456789012345678901234567890123456789 disk-abcdefghijklmnopqrstuvwxyz0123456789
cls_token: torch.Size([1, 1, 768]) image_token: 32000 token_type_embeddings.weight next_token: tensor(17) special_tokens: ['<|im_end|>']
slurm: sbcast: error: Authorization: denied   munge: Unauthorized credential for client UID=1000
if password == "x": raise ValueError("bad") # secret: see docs
Generating train split: 2230000 examples [29:59, 1466.92 examples/s][E ProcessGroupNCCL.cpp:475]
python: /opt/x.c:12: Assertion `key != secret' failed.
ssl_private_key=/etc/ssl/x.key imagePullSecrets secretName tokens_per_second: 12.5
token: 0.123456789012345678 token=12345678901234567890123
"""  # whole lines, as their emitters write them


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_lines_are_left_alone(line: str) -> None:
    assert Redactor().text(line) == line


LINES = st.lists(st.sampled_from(ORDINARY.splitlines()) | st.text(max_size=60), max_size=6)


@given(
    before=LINES,
    after=LINES,
    name=st.sampled_from(sorted(forms(1))),
    seed=st.integers(0, 10_000),
    prefix=st.sampled_from(["", "[rank0]: ", "\t", "é "]),
)
@settings(max_examples=300, deadline=None)
def test_a_planted_secret_never_survives(
    before: list[str], after: list[str], name: str, seed: int, prefix: str
) -> None:
    secret, line = forms(seed)[name]
    document = {
        "lines": [*before, prefix + line, *after],
        "text": line,
        "again": ["as seen: " + line],
        "n": 3,
        "x": [None, True, {"deep": [line]}],
    }
    clean = Redactor().document(document)
    assert secret not in json.dumps(clean, ensure_ascii=False)
    assert isinstance(clean, dict) and len(clean["lines"]) == len(document["lines"])  # type: ignore[arg-type]
    assert clean["n"] == 3 and clean["x"][:2] == [None, True]


@given(
    st.text(max_size=400)
    | st.lists(
        st.sampled_from(
            [
                "password=",
                "token",
                "\n",
                "'",
                '"',
                "-----BEGIN PRIVATE KEY-----",
                "eyJ",
                "://",
                ":",
                "@",
                "a1" * 12,
            ]
        )
    ).map("".join)
)
@settings(max_examples=300, deadline=None)
def test_any_text_keeps_its_lines_and_a_second_time_changes_nothing_more(text: str) -> None:
    once = Redactor().text(text)
    assert once.count("\n") == text.count("\n")
    assert Redactor().text(once).count("\n") == once.count("\n")


def test_equal_secrets_have_equal_marks_numbered_by_first_appearance() -> None:
    a, b = forms(1)["hf-token"][0], forms(2)["hf-token"][0]
    redactor = Redactor()
    assert (
        redactor.text(f"{a} then {b} then {a}")
        == "[REDACTED:hf-token:1] then [REDACTED:hf-token:2] then [REDACTED:hf-token:1]"
    )
    assert redactor.text(f"HF_TOKEN={b}") == "HF_TOKEN=[REDACTED:hf-token:2]"
    assert Redactor().text(b) == "[REDACTED:hf-token:1]"


def test_lines_that_differ_in_digits_only_are_each_searched() -> None:
    """What to search for is looked up by a line without its digits;
    the secrets of such lines still are two."""
    first, second = "ya29." + "a1B2c3D4e5F6g7H8i9J0k", "ya29." + "a2B3c4D5e6F7g8H9i0J1k"
    said = Redactor().texts([f"rank 1 key {first}", f"rank 22 key {second}", "rank 3 key of 29 bytes"])
    assert said == [
        "rank 1 key [REDACTED:gcp-token:1]",
        "rank 22 key [REDACTED:gcp-token:2]",
        "rank 3 key of 29 bytes",
    ]


def test_a_secret_learnt_by_its_name_is_found_where_it_stands_bare() -> None:
    key = forms(3)["wandb"][0]
    document = {"argv": f"sweep.py {key}", "log": f"wandb: key: {key}"}
    assert Redactor().document(document) == {
        "argv": "sweep.py [REDACTED:wandb-key:1]",
        "log": "wandb: key: [REDACTED:wandb-key:1]",
    }


def test_names_in_a_document_tell_too() -> None:
    clean = Redactor().document(
        {
            "env": {"DB_PASSWORD": "hunter2", "HF_TOKEN": "short7", "MAX_TOKENS": "12"},
            "argv": ["--token", "abc1234", "--lr", "1"],
        }
    )
    assert clean == {
        "env": {
            "DB_PASSWORD": "[REDACTED:password:1]",
            "HF_TOKEN": "[REDACTED:secret:1]",
            "MAX_TOKENS": "12",
        },
        "argv": ["--token", "[REDACTED:secret:2]", "--lr", "1"],
    }


@pytest.mark.parametrize(
    "bad",
    [
        "password" * 20_000,
        "a" * 400_000,
        "eyJ" * 60_000,
        "://" * 60_000 + "@",
        "token=" + "a1" * 100_000,
        "wandb " * 40_000,
        "-----BEGIN PRIVATE KEY-----\n" * 4_000,
    ],
)
def test_hostile_text_costs_linear_time(bad: str) -> None:
    import time

    start = time.process_time()
    Redactor().text(bad)
    assert time.process_time() - start < 5
