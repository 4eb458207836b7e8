"""Where a log names hosts, users, addresses and paths, and which words name nobody."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the document that hold names, not prose:
# whatever stands there is learnt before any text is rewritten.
HOST_FIELDS = {"host", "hosts", "peer", "master_addr"}
PATH_FIELDS = {"source", "path"}
KEPT_FIELDS = {
    "schema",
    "outcome",
    "category",
    "pattern",
    "role",
    "kind",
    "state",
    "confidence",
    "time",
    "at",
    "fingerprint",
    "library",
}

PUBLIC = _words(
    "usr bin sbin lib lib32 lib64 local share etc dev shm proc self sys fs cgroup run var log tmp opt home "
    "root mnt srv users data kubelet pods containers docker kernel logs log journal site-packages "
    "dist-packages python conda miniconda3 anaconda3 envs venv .venv checkpoints ckpt checkpoint src "
    "torchelastic nvidia cuda infiniband net workspace job jobs runs run node nodes ranks rank train.py "
    "main.py run.py trainer.py pretrain.py finetune.py launch.py train.sh run.sh __main__.py __init__.py "
    "error.json stdout stderr agent launcher console none slurm ray session_latest w"
)
# From one of these on, a path is public: its code is.
PROJECTS = _words(
    "torch pytorch torchvision gloo nccl numpy pandas lightning pytorch_lightning transformers accelerate "
    "deepspeed megatron apex ray datasets triton multiprocessing concurrent asyncio importlib encodings "
    "ctypes"
)
CORE = _words("torch pytorch torchvision gloo nccl multiprocessing concurrent asyncio importlib ctypes")
PACKAGES = _words("site-packages dist-packages third_party")  # what is in them is called as its project is
CODE = (".py", ".cpp", ".cc", ".cu", ".c", ".h", ".hpp", ".so", ".pyx")
# Words that stand in everybody's logs. A folder may be called so, and the word elsewhere does not mean it.
COMMON = PROJECTS | _words(
    "accelerator action adam adapter address agent allreduce amp analysis api app apps archive args array "
    "artifacts async attention audio auto autograd average backend backup backward barrier base batch bench "
    "benchmark benchmarks bert bfloat16 block blocks boot bucket buffer build cache call callback callbacks "
    "cause class classification clip cluster code codes collate collective comm command common compile "
    "compute conf config configs configuration connection console container context control conv convert "
    "copy core cpu current custom dataloader dataset datasets ddp debug decoder deep default demo deploy "
    "detection device devices dict diffusion dir dist distributed docs done download dtype dump embedding "
    "encoder engine entry entrypoint env environment epoch epochs error errors eval evaluation event events "
    "example examples exception exec exit experiment experiments export extra fabric fail failed fairscale "
    "fast fatal feature features file files final finetune finetuning flash float folder forward fp16 frame "
    "framework fsdp function functional fused general generate generation global gpt gpu gpus gradient "
    "group groups handler hang head health heads helper helpers hidden hook hooks host hosts hydra image "
    "images index inference info init initialize inner input inputs install instance internal jit kernel "
    "kernels key keys label language large last latest layer layers learning level libs library line linear "
    "list llama llm load loader local lock logger logging logits login loop loss machine main manager map "
    "mask master math matmul memory merge message metric metrics misc mlp mnist mode model models module "
    "modules monitor name native network networks norm notebook notebooks nets normal object offline online "
    "open ops optim optimizer optimizers option options output outputs parallel param parameter parameters "
    "params parser part partition pipeline plugin plugins point pool port pretrain pretrained pretraining "
    "private process processed processes processor profile profiler progress project projects prompt public "
    "queue random read reader recipe recipes record records reduce register release remote report reports "
    "request requests reset resnet resource resources response result results resume rlhf root runner "
    "running runtime sample sampler samples save saved schedule scheduler schema scratch script scripts "
    "search sequence server service session setting settings setup shared shell signal simple single size "
    "slow small snapshot socket solver source split stage staging start state stats status step steps stop "
    "storage store strategy stream string structure style sync system table target task tasks teacher "
    "temp template tensor tensorboard tensors test testing tests text thread time timeout timer token "
    "tokenizer tokens tool tools trace train trainer trainers training transform transformer transforms "
    "tune tuning type types unit unknown update upload user users util utility utils valid validate "
    "validation value values version video view vision vocab wait warm warmup warning watchdog weight "
    "weights window work worker workers wrapper write writer zero wandb tqdm xformers flash_attn vllm timm "
    "einops peft trl bitsandbytes mlflow omegaconf fsspec s3fs boto3 botocore urllib3 aiohttp scipy sklearn "
    "matplotlib yaml jinja2 click typer rich pydantic fastapi uvicorn sentencepiece tokenizers safetensors "
    "huggingface_hub horovod mpi4py cupy jax flax tensorflow keras nltk spacy onnx onnxruntime torchrun "
    "torchaudio torchtext torchdata torchtitan composer streaming nemo colossalai fairseq mmcv mmengine "
    "mmdet detectron2 ultralytics dask psutil pynvml python3 singularity enroot apptainer kubernetes cuda "
    "nvidia huggingface deepspeed megatron lightning"
)
PUBLIC_FORM = re.compile(
    r"none_\w{8}|torch_\d+(?:_\d+)*|(?:python|cuda|lib|pt)[-_]?[\d.]+|(?:attempt|rank|node|host|gpu"
    r"|local_rank|proc|worker|task|step|epoch|group)?[-_.]?\d{1,6}"
    r"|(?:attempt|rank|worker|local_rank)[-_]?\d*[-_.]?(?:stdout|stderr|log|out|err)?|\.{1,2}|~|[A-Z]"
    r"|lib[\w.+-]+\.so[\d.]*"
)
LOG_NAME = re.compile(
    r"(?:rank|worker|local_rank|attempt|std(?:out|err)|dmesg|kern|syslog|messages|journal|agent|launcher"
    r"|console|torchrun|train|nccl|error|"
    r"slurm|output|stack|pyspy|py-spy|events|nvidia-smi|sacct|iso|bundle|out|err|log|[-_.\d])+(?:\.(?:log"
    r"|txt|json|out|err|gz|zst|tar|zip|pkl|bin))*"
)
CODE_FILE = re.compile(r"(?<![\w./\\-])(?P<s>[A-Za-z_][\w-]{0,80}\.(?:py|ipynb|sh|sbatch|ya?ml|toml))(?![\w/])")
SUFFIX = re.compile(r"(?:\.(?:tar|[A-Za-z][A-Za-z0-9]{0,7}))*\.[A-Za-z][A-Za-z0-9]{0,7}$")

# A name ends where no letter nor digit goes on: `node-a_ib0` and `ALICE-RUN` name node-a and alice, `malice`
# nobody. Behind `\n` and `%2F` as JSON and URLs write them it starts too, and so it does in `trainMoonshot`.
NAME_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?-i:(?<=[a-z])(?=[A-Z])))"
NAME_END = r"(?-i:(?![a-z0-9]))"
WORD_END = r"(?![A-Za-z0-9_])"
DOMAIN = (
    r"(?P<domain>(?:\.(?!(?:log|txt|err|out|json|gz|zst|xz|bz2|tar|tgz|zip|pkl|bin|py"
    r"|sh|yaml|yml|pt|ckpt)\b)[A-Za-z0-9-]{1,62})*)"
)
USER_AT = (
    re.compile(
        r"/(?:home|Users|scratch/users?|export/home|nfs/home|work/users?)/(?P<s>[A-Za-z_][\w.-]{0,63})"
        r"(?=/|[\s'\":,)\]]|$)"
    ),
    re.compile(
        r"(?i)\b(?:user(?:_?name)?|owner|logname|author|entity|logged in as)\s{0,2}[=:]\s{0,2}['\"]?"
        r"(?P<s>[a-z_][a-z0-9._-]{1,31})" + WORD_END
    ),
    re.compile(r"\bu?id=\d+\((?P<s>[\w.-]{1,32})\)"),
    re.compile(r"(?<![\w.+-])(?P<s>[A-Za-z_][\w.+-]{0,63})@(?=[A-Za-z0-9])"),
)
MAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9_][\w.+-]{0,63}@(?P<s>[A-Za-z0-9-]{1,62}(?:\.[A-Za-z0-9-]{1,62})+)")
PUBLIC_DOMAINS = _words(
    "github.com gitlab.com bitbucket.org pytorch.org huggingface.co python.org pypi.org nvidia.com "
    "example.com example.org cluster.local svc.cluster.local googleapis.com amazonaws.com "
    "openai.com wandb.ai docker.io"
)
# Everybody's handbooks: an address in them tells nothing.
HANDBOOKS = re.compile(
    r"(?:pytorch\.org|(?:docs|developer)\.nvidia\.com|docs\.(?:python\.org|ray\.io)|slurm\.schedmd\.com|aka\.ms"
    r"|(?:lightning\.ai|huggingface\.co)/docs)"
)
HOST_AT = (
    # debug.cc prints host:pid:tid
    re.compile(r"(?m)^(?:\[[^\]]{0,40}\]:?\s*)*(?P<s>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] NCCL "),
    re.compile(
        r"(?m)^\w{3} [ \d]\d \d\d:\d\d:\d\d (?P<s>[A-Za-z][\w.-]{1,80}) (?:kernel|systemd|slurm\w*|kubelet"
        r"|sshd|sudo)\b"
    ),
    re.compile(
        rf"(?i)\b(?:master_addr|hostname|nodelist|nodename|rdzv_endpoint|batchhost|host_name)"
        rf"['\"]?\s{{0,2}}[=:]\s{{0,2}}['\"]?(?P<s>[a-z][\w.-]{{1,80}}){WORD_END}"
    ),
    # srun: error: gpu-17: task 3: Killed; slurmstepd: error: *** STEP 12.0 ON gpu-17 CANCELLED
    re.compile(r"\bsrun: error: (?P<s>[A-Za-z][\w.-]{1,80}): tasks? \d"),
    re.compile(r"\*\*\* (?:JOB|STEP) [\w.+-]{1,40} ON (?P<s>[A-Za-z][\w.-]{1,80}) "),
    re.compile(r"(?<![\w.-])(?P<s>ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})(?!\d)"),
    # ssh alice@gpu7, a prompt, what stands behind a user in a URL
    re.compile(r"\b(?:ssh|scp|rsync|sftp)\b[^\n@]{0,200}?[\w.-]{1,64}@(?P<s>[A-Za-z][\w.-]{1,80})"),
    re.compile(r"\b[A-Za-z_][\w.-]{0,63}@(?P<s>[A-Za-z][\w.-]{1,80}):[~/]"),
    re.compile(r"://[^\s/@]{1,200}@(?P<s>[A-Za-z][\w.-]{1,80})"),
    # socket.cpp: [host]:port, (host, port)
    re.compile(r"[\[(](?P<s>[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,6})(?:\]:|, )\d{2,5}\b"),
)  # fmt: skip
# What somebody called his work, where that is said.
WORK_AT = re.compile(
    r"(?i)\b(?:run_?name|experiment(?:_?name)?|exp_?name|project(?:_?name)?|wandb_project|job_?name|study_?name)"
    r"['\"]?\s{0,2}[=:]\s{0,2}['\"]?(?P<s>[a-z_][\w.-]{2,63})" + WORD_END
)
NOT_NAMES = _words(
    "root nobody localhost none null true false unknown user users default admin ubuntu self any all rank "
    "host git ssh www-data slurm munge systemd kernel is in to the and"
)
URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{1,15}://)(?P<user>[^\s/'\"<>:@\[\]]{1,64}(?::[^\s/'\"<>@]{0,256})?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}(?:%\w{1,15})?\]|[^\s/'\"<>:@\[\]]{1,200})"
    r"(?P<port>:\d+)?(?P<rest>(?:/[\w.@+,=~%-]+)*)"
)
MAC = re.compile(r"(?<![0-9A-Fa-f:-])[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2}){5}|(?:-[0-9a-fA-F]{2}){5})(?![0-9A-Fa-f:])")
V4 = re.compile(r"(?<![A-Za-z0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")
# A run of groups, perhaps with an interface in front (`eth0:2001:db8::91<0>`), a zone, or a port behind.
V6 = re.compile(
    r"(?<![\w:.])(?P<device>[A-Za-z][\w.-]{0,15}:(?=[0-9a-fA-F:]*:[0-9a-fA-F:.]*[<%]))?"
    r"(?P<ip>(?=[0-9a-fA-F]*:)[0-9a-fA-F:]{3,45}(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?)(?:%[\w.-]{1,15})?(?![\w:]|\.\d)"
)
GUID = re.compile(r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}")  # of an InfiniBand port
PATH = re.compile(
    r"(?<![\w./\\-])(?:~|\.{1,2})?/(?:[\w.@+,=~%-]+/)*[\w.@+,=~%-]*"
    r"|(?<![\w./\\:-])(?:[\w.@+=-]+/)+[\w.@+=-]*\.[A-Za-z]\w{0,7}(?![\w/])"
)
SOURCE_NAME = re.compile(r"\.(?:py|cpp|cc|cu|c|h|hpp|so|log|txt|json)$")
