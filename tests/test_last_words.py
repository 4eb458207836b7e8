"""What stands at the end of a log: an error of unknown words, or a wait that nothing ended,
is no health; what goes on is."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze

SLOW = "(EngineCore pid=222) INFO 08-15 11:{}:19 [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation).\n"
WAITS = "".join(SLOW.format(m) for m in (16, 17, 18))
LOADED = (
    "(Worker_TP0 pid=240) INFO 08-15 11:18:40 [gpu_worker.py:298] Available KV cache memory: 11.17 GiB\n"
    "(APIServer pid=230) INFO:     Application startup complete.\n"
)
UNKNOWN = "(VllmWorker rank=3 pid=44710) ERROR 08-20 09:48:31 [pynccl_wrapper.py:229] Failed to load NCCL library from /root/libnccl.so\n"
TRIES = "".join(
    (f"2025-03-26 05:53:1{s} - INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds...\n")
    for s in (3, 5, 7)
)
AGAIN = "[Auto Resume] Info: JobID: 82 StepID: 0 "
LOST = AGAIN + "Job failed - replacing nodes\n" + AGAIN + "Job failed - Droping unhealthy nodes\n"
RETRIED = AGAIN + "Job Expansion complete\n" + AGAIN + "Retrying step. Attempt number: 1\n"
XLA = "E0000 00:00:1746473191.041206 94 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN\n"
AGENT = "[2025-12-06 15:49:24,447 E 26 29] core_worker_process.cc:825: Failed to establish connection to the metrics exporter agent.\n"
HOME = "slurmstepd: error: couldn't chdir to `/home/x': No such file or directory: going to /tmp instead\n"
ANSWER = 'INFO:     192.0.2.7:44212 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
STEPS = "step 6 step_time 458.59s loss 1.67 grad norm 10.125\nstep 7 step_time 286.14s loss 1.69 grad norm 10.875\n"
# NVIDIA/nccl pull request 1618: one connect timed out, the next one worked
CONNECT = "[03/16][2025-02-25 15:46:48,389] [misc/socket.cc:602] [node-a:pid=39] NCCL WARN socketPollConnect poll() failed, ret 1, error Connection timed out, revents 8\n"
ONCE_MORE = "[03/16][2025-02-25 15:46:48,390] [misc/socket.cc:551] [node-a:pid=39] NCCL INFO socketPollConnect: connect returned Connection timed out, retrying (1/34) after sleep for 100 msec\n"
# aws/aws-ofi-nccl issue 663: a return code of 0 is no good end of what could not be done
NO_PEER = (
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, internal error\n"
    "[rank1]: ncclInternalError: Internal check failed.\n[rank1]: Last error:\n"
    "[rank1]: NET/OFI Unable to insert remote address into address vector for device 1. RC: 0\n"
)
DUMP = (
    "Current thread 0x00007f80908e0640 (most recent call first):\n"
    '  File "/opt/conda/lib/threading.py", line 953 in run\n'
)
CASES = {
    "vLLM's engine waits to the end": (
        LOADED + WAITS,
        "incident",
        "vLLM waited for a worker to read its broadcast",
    ),
    "it waited while a worker loaded": (WAITS + LOADED, "healthy", ""),
    "twice may be a compilation": (LOADED + SLOW.format(16) + SLOW.format(17), "healthy", ""),
    "an error that no pattern knows": (LOADED + UNKNOWN, "incident", "The log ends with an error"),
    "and a trap of the shell after it": (
        LOADED + UNKNOWN + "+ exit 1\n",
        "incident",
        "The log ends with an error",
    ),
    "the same error, and the job went on": (UNKNOWN + STEPS, "healthy", ""),
    "an error that something shrugged off": (LOADED + UNKNOWN.strip() + ", ignored\n", "healthy", ""),
    "an error that is known to be none": (LOADED + XLA, "healthy", ""),
    "Ray's metrics, which nobody misses": (LOADED + AGENT, "healthy", ""),
    "a home that is not there": (LOADED + HOME, "healthy", ""),
    "a request that cannot be served": (
        LOADED + "ERROR:    Exception in ASGI application\n" + ANSWER,
        "healthy",
        "",
    ),
    "the server that does not answer": (
        LOADED + ANSWER + "ERROR:    Exception in ASGI application\n",
        "incident",
        "The log ends",
    ),
    "a table with a column of that name": (
        " NAME  STATUS   SUBMITTED   ERROR\n job-1 running  5 mins ago\n",
        "undetermined",
        "these logs show no job",
    ),
    "a count of no errors": (LOADED + "checked 12 files, 0 ERROR, ERRORS: 0\n", "healthy", ""),
    "a server that never came": (
        TRIES,
        "undetermined",
        "the log ends in retries",
    ),
    "a server that came": (TRIES + "2025-03-26 05:53:19 - INFO - Server is up\n", "healthy", ""),
    "a step that HyperPod runs again": (
        LOST + RETRIED + STEPS,
        "recovered",
        "Recovered: in attempt 0 a platform reported that the job failed",
    ),
    "a step that it has not run again yet": (LOST, "incident", "A platform reported that the job failed"),
    "a connect that timed out": (CONNECT, "incident", "NCCL could not reach a peer's host"),
    "and that NCCL tries again": (CONNECT + ONCE_MORE, "undetermined", "NCCL retries a connection"),
    "a return code of 0 below an exception": (NO_PEER, "incident", "torch.distributed raised"),
    "a stack and nothing else": (DUMP, "undetermined", "the only evidence is the stack of a process"),
    "a stack that somebody asked for at work": (STEPS + DUMP, "healthy", ""),
    "a crash in a text that a model wrote": (
        STEPS + "---- sample ----\nSegmentation fault (core dumped)\n---- end ----\ndone, 160 of 160 steps\n",
        "healthy",
        "",
    ),
    "a shell that says in Chinese that its command was killed": (
        "Writing metrics: logdir/scores.jsonl\n已杀死\n",  # dreamerv3 issue 203
        "incident",
        "killed by SIGKILL",
    ),
    # pytorch issue 91943: the other node was stopped; until torch 2.1 no line of a watchdog has a prefix
    "an abort whose reason stands above without a name": (
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n"
            "  what():  NCCL error: unhandled system error, NCCL version 21.0.3\n"
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 0 (pid: 2019) of binary: /usr/bin/python\n"
        ),
        "incident",
        "communication layer ended the process",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_end_of_a_log(name: str, tmp_path: Path) -> None:
    text, outcome, said = CASES[name]
    (tmp_path / "train.log").write_text(text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    assert verdict["outcome"] == outcome
    assert said in verdict["headline"]
    assert not any(verdict["culprit"][who] for who in ("ranks", "hosts", "gpus"))
