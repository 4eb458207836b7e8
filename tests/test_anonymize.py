"""Pseudonyms: no output has a name, a failure remains readable, and the same input gives the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from conftest import SAMPLES
from postmortem import report
from postmortem.analyze import analyze
from postmortem.privacy.anonymize import Anonymizer, anonymized

FOLDER = "/home/gertrude/moonshot"
EVERY = [
    report.render_html, report.render_markdown, report.render_json, report.render_terminal,
    report.render_verbose, report.render_brief, report.render_ndjson, report.render_csv, report.render_trace,
    report.render_github, report.render_junit,
]  # fmt: skip


def clean(text: str, *hosts: str) -> str:
    names = Anonymizer()
    for host in hosts:
        names.learn(host, "host")
    names.learn_text(text)
    return names.text(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ssh alice@gpu7.cluster.example.org", "ssh user-1@host-1"),
        ("[Errno 28] '/home/alice/exp7/ckpt.pt'; alice is over",
     "[Errno 28] '/home/user-1/dir-1/file-1.pt'; user-1 is over"),
        ("connect to [10.3.0.17]:29500, then 10.3.0.18, then 10.3.0.17",
     "connect to [address-1]:29500, then address-2, then address-1"),
        ("peer [2001:db8::1]:29500, mac 0c:42:a1:5f:00:9e", "peer [address-2]:29500, mac address-1"),
        ("gpu7:812:812 [0] NCCL INFO Bootstrap", "host-1:812:812 [0] NCCL INFO Bootstrap"),
        ("[default2]:2026-11-21 12:57:50 INFO step 1", "[default2]:2026-11-21 12:57:50 INFO step 1"),
        ("failed to connect to [trainer-0.head.svc]:29500", "failed to connect to [host-1]:29500"),
        ("s3://acme-secret/exp7/shard.bin", "s3://address-1/dir-1/file-1.bin"),
        ("in secret_model.py:16, called by train.py:4", "in file-1.py:16, called by train.py:4"),
        ("node-0112 node-0112.example.org node-0112: /var/log/node-0112.log node-01120 xnode-0112",
         "host-1 host-1 host-1: /var/log/host-1.log node-01120 xnode-0112"),
    ],
)  # fmt: skip
def test_names_become_pseudonyms(text: str, shown: str) -> None:
    hosts = [host for host in ("gpu7.", "node-0112") if host in text]
    assert clean(text, *(host.strip(".") for host in hosts)) == shown


@pytest.mark.parametrize(
    "text",
    [
        'File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1511, in _call_impl',
        "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer",
        "Listening on 127.0.0.1:29500, ::1 and 0.0.0.0; step 812/1000, 3.5 it/s, loss 1.25 at 12:54:37.104",
        "c10::Error, at::native, std::bad_alloc; torch 2.13.0+cpu; 0000:17:00.0",
        "unable to allocate shared memory(shm) for file </dev/shm/torch_4220>: and/or I/O",
    ],
)
def test_names_of_every_machine_remain(text: str) -> None:
    assert clean(text) == text


def test_no_output_holds_a_name() -> None:
    """Names in every place in which the analysis puts them, in a real incident of two hosts."""
    found = analyze([str(SAMPLES / "oom-on-second-host" / "logs")])

    def named(text: str) -> str:
        return text.replace("node-a", "falcon-x1").replace("node-b", "falcon-x2").replace("/opt/train", FOLDER)

    events = tuple(
        e._replace(
            host=e.host and named(e.host),
            text=f"gertrude@{e.host} 10.77.1.9 {FOLDER}/a.py {named(e.text)}",
            where=e.where._replace(source=named(e.where.source)),
        )
        for e in found.timeline.events
    )
    document = json.loads(named(json.dumps(found.document)))
    given = replace(found, document=document, timeline=replace(found.timeline, events=events))
    assert "falcon" in report.render_ndjson(given)
    hidden = anonymized(given)
    for render in EVERY:
        shown = render(hidden).lower()
        for name in ("falcon", "gertrude", "moonshot", "10.77.1.9"):
            assert name not in shown, (render.__name__, shown[max(0, shown.find(name) - 80) : shown.find(name) + 80])
    assert "host-2/kernel/dmesg.txt:85" in report.render_markdown(hidden)
    assert report.render_html(hidden) == report.render_html(anonymized(given))
    paths = [source["path"] for source in hidden.document["sources"]]
    assert {item["source"] for item in hidden.document["verdict"]["evidence"]} <= set(paths)
    assert paths[0].startswith("host-1/") and paths[-1].startswith("host-2/"), "numbers follow the paths"
    assert [rank["host"] for rank in hidden.document["ranks"]] == ["host-1", "host-1", "host-2", "host-2"]
    alone = anonymized(replace(given, timeline=None))
    assert "falcon" not in json.dumps(alone.document)
