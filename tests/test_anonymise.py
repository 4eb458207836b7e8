"""Pseudonyms: no name is left in any output, what helps to read a failure stays,
and the same input gives the same bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from report_cases import load

from conftest import SAMPLES
from postmortem import report
from postmortem.analyze import analyze
from postmortem.privacy.anonymise import Anonymiser, anonymised

EVERY = [
    report.render_html, report.render_markdown, report.render_json, report.render_terminal,
    report.render_verbose, report.render_brief, report.render_ndjson, report.render_csv, report.render_trace,
    report.render_github, report.render_junit,
]  # fmt: skip


def clean(text: str, *hosts: str) -> str:
    names = Anonymiser()
    for host in hosts:
        names.learn(host, "host")
    names.learn_text(text)
    return names.text(text)


@pytest.mark.parametrize(
    ("said", "shown"),
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
    ],
)  # fmt: skip
def test_names_become_pseudonyms(said: str, shown: str) -> None:
    assert clean(said, *(["gpu7"] if "gpu7." in said else [])) == shown


@pytest.mark.parametrize(
    "said",
    [
        'File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1511, in _call_impl',
        "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer",
        "Listening on 127.0.0.1:29500, ::1 and 0.0.0.0; step 812/1000, 3.5 it/s, loss 1.25 at 12:54:37.104",
        "c10::Error, at::native, std::bad_alloc; torch 2.13.0+cpu; 0000:17:00.0",
        "unable to allocate shared memory(shm) for file </dev/shm/torch_4220>: and/or I/O",
    ],
)
def test_what_tells_nothing_about_a_place_stays(said: str) -> None:
    assert clean(said) == said


def test_a_host_is_one_host_in_every_form() -> None:
    said = "node-0112 node-0112.example.org node-0112: /var/log/node-0112.log node-01120 xnode-0112"
    assert clean(said, "node-0112") == "host-1 host-1 host-1: /var/log/host-1.log node-01120 xnode-0112"


@dataclass(frozen=True)
class Named:
    document: dict[str, Any]
    timeline: Any = None


def test_no_output_holds_a_name() -> None:
    """Names in every place in which the analysis puts them, in a real incident of two hosts."""
    found = analyze([str(SAMPLES / "oom-on-second-host" / "logs")])
    text = json.dumps(found.document).replace("/opt/train", "/home/gertrude/moonshot")
    text = text.replace("node-a", "falcon-x1").replace("node-b", "falcon-x2")
    events = tuple(
        e._replace(
            host=e.host and e.host.replace("node-", "falcon-x"),
            text=(
                f"gertrude@{e.host} 10.77.1.9 "
                f"/home/gertrude/moonshot/a.py {e.text.replace('/opt/train', '/home/gertrude/moonshot')}"
            ),
            where=e.where._replace(source=e.where.source.replace("node-a", "falcon-x1").replace("node-b", "falcon-x2")),
        )
        for e in found.timeline.events
    )
    named = replace(found, document=json.loads(text), timeline=replace(found.timeline, events=events))
    assert "falcon" in report.render_ndjson(named)
    hidden = anonymised(named)
    for render in EVERY:
        shown = render(hidden).lower()
        for name in ("falcon", "gertrude", "moonshot", "10.77.1.9"):
            assert name not in shown, (
                render.__name__,
                shown[max(0, shown.find(name) - 80) : shown.find(name) + 80],
            )
    assert "host-2/kernel/dmesg.txt:85" in report.render_markdown(hidden)
    assert report.render_html(hidden) == report.render_html(anonymised(named))


def test_addresses_still_lead_to_the_sources_and_numbers_follow_the_paths() -> None:
    hidden = anonymised(analyze([str(SAMPLES / "oom-on-second-host" / "logs")])).document
    paths = [source["path"] for source in hidden["sources"]]
    assert {item["source"] for item in hidden["verdict"]["evidence"]} <= set(paths)
    assert paths[0].startswith("host-1/") and paths[-1].startswith("host-2/")
    assert [rank["host"] for rank in hidden["ranks"]] == ["host-1", "host-1", "host-2", "host-2"]


def test_a_document_alone_can_be_anonymised() -> None:
    case = load("oom")
    assert "node-b" not in json.dumps(anonymised(Named(case.document)).document)
