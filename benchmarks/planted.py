"""Secrets to plant, made from the providers' and tools' public formats, and the lines that they stand in.

    for plant in plants(seed=1, count=1000): plant.kind, plant.secret, plant.text, plant.unseen

Nothing here comes from the rules of `postmortem.privacy`: a form says what the issuer documents (prefix,
length, alphabet), a surrounding is a line as a tool prints it. Of the surroundings of each kind every third
was
*unseen*: no rule was tried on it before the rules were finished, nor on those of LATER. No secret here was
ever valid.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
B32 = string.ascii_uppercase + "234567"
URLSAFE = ALNUM + "-_"
B64 = ALNUM + "+/"
SYMBOLS = "!#$%*+-._~^"
BREAKING = ",;&)"  # what ends an unquoted value for most readers, and stands in passwords all the same

Make = Callable[[random.Random], str]


class Plant(NamedTuple):
    kind: str
    secret: str
    text: str  # one line or more
    unseen: bool


def some(prefix: str, n: int, alphabet: str = ALNUM, suffix: str = "") -> Make:
    return lambda r: prefix + "".join(r.choices(alphabet, k=n)) + suffix


def parts(*pieces: str | tuple[int, str]) -> Make:
    """Fixed text and random runs by turns: ("xoxb-", (12, digits), "-", (24, alnum))."""

    def make(r: random.Random) -> str:
        return "".join(p if isinstance(p, str) else "".join(r.choices(p[1], k=p[0])) for p in pieces)

    return make


def password(symbols: str = SYMBOLS, low: int = 9, high: int = 20) -> Make:
    """What a password manager makes: letters of both cases, digits, and a few other signs inside."""

    def make(r: random.Random) -> str:
        inner = [r.choice(string.ascii_lowercase), r.choice(string.ascii_uppercase), r.choice(string.digits)]
        inner += [r.choice(symbols)] if symbols else []
        inner += r.choices(ALNUM, k=r.randint(low, high) - len(inner) - 2)
        r.shuffle(inner)
        return r.choice(string.ascii_letters) + "".join(inner) + r.choice(ALNUM)

    return make


def b64(make: Make) -> Make:
    return lambda r: base64.b64encode(make(r).encode()).decode()


def jwt(r: random.Random) -> str:
    def part(said: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    return ".".join(
        [
            part({"alg": "RS256", "typ": "JWT"}),
            part({"sub": some("", 20)(r), "exp": 1795209228}),
            some("", 86, URLSAFE)(r),
        ]
    )


DIGITS = string.digits
UPPER = string.ascii_uppercase + DIGITS
uuid = parts((8, HEX), "-", (4, HEX), "-4", (3, HEX), "-a", (3, HEX), "-", (12, HEX))

# ── secrets that say by themselves what they are ────────────────────────────────────────────────────────────
BARE: dict[str, Make] = {
    "hugging-face": some("hf_", 34, string.ascii_letters),
    "aws-key-id": some("AKIA", 16, B32),
    "aws-temporary-id": some("ASIA", 16, B32),
    "google-api-key": some("AIza", 35, URLSAFE),
    "google-oauth": some("ya29.a0", 150, URLSAFE),
    "google-client-secret": some("GOCSPX-", 28, URLSAFE),
    "github-classic": some("ghp_", 36),
    "github-server": some("ghs_", 36),
    "github-fine-grained": parts("github_pat_", (22, ALNUM), "_", (59, ALNUM)),
    "gitlab-personal": some("glpat-", 20, URLSAFE),
    "gitlab-runner": some("glrt-", 20, URLSAFE),
    "anthropic": some("sk-ant-api03-", 93, URLSAFE, "AA"),
    "openai-project": parts("sk-proj-", (74, URLSAFE), "T3BlbkFJ", (74, URLSAFE)),
    "openai-legacy": parts("sk-", (20, ALNUM), "T3BlbkFJ", (20, ALNUM)),
    "openrouter": some("sk-or-v1-", 64, HEX),
    "xai": some("xai-", 80),
    "groq": some("gsk_", 52),
    "replicate": some("r8_", 37),
    "perplexity": some("pplx-", 48),
    "tavily": some("tvly-dev-", 32),
    "pinecone": parts("pcsk_", (6, ALNUM), "_", (63, ALNUM)),
    "langsmith": parts("lsv2_pt_", (32, HEX), "_", (10, HEX)),
    "nvidia": some("nvapi-", 64, URLSAFE),
    "wandb-v1": parts("wandb_v1_", (27, ALNUM), "_", (49, ALNUM)),
    "docker-hub": some("dckr_pat_", 27, URLSAFE),
    "pypi": some("pypi-AgEIcHlwaS5vcmcC", 120, URLSAFE),
    "npm": some("npm_", 36),
    "databricks": some("dapi", 32, HEX),
    "digital-ocean": some("dop_v1_", 64, HEX),
    "doppler": some("dp.pt.", 43),
    "vault-service": some("hvs.", 94, URLSAFE),
    "vault-batch": some("hvb.AAAA", 140, URLSAFE),
    "terraform-cloud": parts((14, ALNUM), ".atlasv1.", (67, URLSAFE)),
    "stripe-secret": some("sk_live_", 24),
    "stripe-restricted": some("rk_test_", 99),
    "slack-bot": parts("xoxb-", (12, DIGITS), "-", (13, DIGITS), "-", (24, ALNUM)),
    "slack-app": parts("xapp-1-A", (10, UPPER), "-", (13, DIGITS), "-", (64, HEX)),
    "sendgrid": parts("SG.", (22, URLSAFE), ".", (43, URLSAFE)),
    "sentry-user": some("sntryu_", 64, HEX),
    "grafana-service": parts("glsa_", (32, ALNUM), "_", (8, HEX)),
    "shopify": some("shpat_", 32, HEX),
    "tailscale": parts("tskey-auth-k", (11, ALNUM), "CNTRL-", (32, ALNUM)),
    "docker-swarm": parts(
        "SWMTKN-1-", (50, string.ascii_lowercase + DIGITS), "-", (25, string.ascii_lowercase + DIGITS)
    ),
    "age": some("AGE-SECRET-KEY-1", 58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "atlassian": some("ATATT3xFfGF0", 172, URLSAFE, "=1A2B3C4D"),
    "new-relic": some("NRAK-", 27, UPPER),
    "linear": some("lin_api_", 40),
    "figma": some("figd_", 40, URLSAFE),
    "notion": parts("ntn_", (11, DIGITS), (35, ALNUM)),
    "supabase": some("sbp_", 40, HEX),
    "ruby-gems": some("rubygems_", 48, HEX),
    "postman": parts("PMAK-", (24, HEX), "-", (34, HEX)),
    "alibaba": some("LTAI5t", 18),
    "fly-io": some("fo1_", 43, URLSAFE),
    "azure-client-secret": parts((3, ALNUM), "8Q~", (34, ALNUM + "_.-")),
    "telegram-bot": parts((10, DIGITS), ":AA", (33, URLSAFE)),
    "jwt": jwt,
}
BARE_IN = (
    "{}",
    "ValueError: token {} is not valid",
    "2026-11-20 21:03:41,633 ERROR client.py:88 request with {} was refused (401)",
    "[rank3]: huggingface_hub.errors.HTTPError: 401 Client Error for key {}, try again",
    "export SOME_VARIABLE={}",
    '{"level": "error", "msg": "bad credential", "value": "{}"}',
    "['python', 'train.py', '--hub', '{}', '--lr', '1e-4']",
    "curl -s https://api.example.org/v1/models?k={}&page=2",
    "    client = Client('{}', timeout=30)",
    "docker run -e X={} image:latest python train.py",
    "Config(name='run7', cred='{}', steps=100)",
    "remote: Invalid credentials ({}).",
    "\x1b[31mERROR\x1b[0m {}\x1b[0m rejected",
    'args: {\\"x\\": \\"{}\\", \\"y\\": 2}',
    "  cred: {}  # from the vault",
    "+ launch.sh --cred={} --nodes 4",
    "Authenticating with {}…",
    "<cred>{}</cred>",
    "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/cache/{}/config.json'",
    "https://{}@git.example.org/team/repo.git",
    "x-cred:{}",
)

STRONG = password()
PLAIN = password("")
LONG = some("", 40)
HEX32 = some("", 32, HEX)
HEX40 = some("", 40, HEX)

# ── secrets that only their surroundings tell: kind -> (how one is made, surroundings) ──────────────────────
NAMED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "aws-secret-key": (
        some("", 40, B64),
        (
            "AWS_SECRET_ACCESS_KEY={}",
            "aws_secret_access_key = {}",
            "aws configure set aws_secret_access_key {}",
            '{"AccessKeyId": "x", "SecretAccessKey": "{}", "Token": null}',
            "boto3.client('s3', aws_secret_access_key='{}')",
            "spark.hadoop.fs.s3a.secret.key={}",
        ),
    ),
    "hadoop-secret": (
        some("", 40, B64),
        (
            "fs.s3a.secret.key={}",
            "<name>fs.s3a.secret.key</name><value>{}</value>",
            "--conf spark.hadoop.fs.s3a.secret.key={} --conf spark.x=1",
            "26/11/20 12:00:01 DEBUG Configuration: fs.s3a.secret.key: {}",
        ),
    ),
    "aws-session": (
        some("FwoGZXIvYXdzE", 300, B64),
        (
            "AWS_SESSION_TOKEN={}",
            "x-amz-security-token: {}",
            "aws_session_token = {}",
            "'SessionToken': '{}'",
        ),
    ),
    "wandb-key": (
        HEX40,
        (
            "WANDB_API_KEY={}",
            "wandb: key: {}",
            "wandb login {}",
            'wandb.login(key="{}")',
            "wandb: Appending key for api.wandb.ai to your netrc file: {}",
            "wandb login --relogin {}",
        ),
    ),
    "kaggle": (
        HEX32,
        (
            "KAGGLE_KEY={}",
            '{"username":"alice","key":"{}"}',
            "export KAGGLE_KEY={}; kaggle datasets list",
            "kaggle.json: {'username': 'alice', 'key': '{}'}",
        ),
    ),
    "jupyter": (
        some("", 48, HEX),
        (
            "JUPYTER_TOKEN={}",
            "http://gpu7:8888/lab?token={}",
            "[I ServerApp] http://127.0.0.1:8888/tree?token={}",
            "jupyter lab --NotebookApp.token={} --no-browser",
            "c.IdentityProvider.token = '{}'",
            "jupyter notebook --ServerApp.token='{}'",
        ),
    ),
    "azure-storage": (
        some("", 86, B64, "=="),
        (
            "AZURE_STORAGE_KEY={}",
            "DefaultEndpointsProtocol=https;AccountName=ckpts;AccountKey={};EndpointSuffix=core.windows.net",
            "az storage blob upload --account-key {} -f x",
            'AZURE_STORAGE_ACCESS_KEY: "{}"',
            "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={}",
            "storage_account_key={}",
        ),
    ),
    "azure-sas": (
        some("", 43, ALNUM, "%3D"),
        (
            "https://a.blob.core.windows.net/c/ckpt?sv=2022-11-02&sp=r&sig={}&se=2026",
            "AZURE_STORAGE_SAS_TOKEN=sv=2022-11-02&sig={}",
            "azcopy cp x 'https://a.blob.core.windows.net/c?sp=r&sig={}'",
        ),
    ),
    "presigned-s3": (
        some("", 64, HEX),
        (
            "GET https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={}",
            "X-Amz-Signature={}",
            "'X-Amz-Signature': '{}'",
            "AWS4-HMAC-SHA256 Credential=x/20261120/us-east-1/s3/aws4_request, Signature={}",
        ),
    ),
    "presigned-gcs": (
        some("", 512, HEX),
        (
            "https://storage.googleapis.com/b/x?X-Goog-Date=1&X-Goog-Signature={}",
            "X-Goog-Signature={}",
            "X-Goog-Signature: {}",
            '"X-Goog-Signature": "{}"',
        ),
    ),
    "bearer": (
        LONG,
        (
            "Authorization: Bearer {}",
            "authorization: bearer {}",
            "{'Authorization': 'Bearer {}'}",
            'curl -H "Authorization: Bearer {}" https://x',
            "> Authorization: Bearer {}",
            "headers={b'authorization': b'Bearer {}'}",
        ),
    ),
    "basic": (
        b64(lambda r: "alice:" + STRONG(r)),
        (
            "Authorization: Basic {}",
            "Proxy-Authorization: Basic {}",
            "git -c http.extraheader='AUTHORIZATION: basic {}' fetch",
            '"authorization": "Basic {}"',
            "-H 'Authorization: Basic {}'",
        ),
    ),
    "cookie": (
        some("", 32, ALNUM),
        (
            "Cookie: session={}",
            "Cookie: lang=en; sessionid={}; theme=dark",
            "> Cookie: _xsrf=2|a|b; token={}",
            "{'Cookie': 'sid={}'}",
            "curl -b 'session={}' https://x",
            'Cookie: "auth={}"',
        ),
    ),
    "set-cookie": (
        some("", 40, URLSAFE),
        (
            "Set-Cookie: sid={}; Path=/; HttpOnly",
            "< set-cookie: session={}; Secure",
            "'Set-Cookie': 'JSESSIONID={}; Path=/'",
        ),
    ),
    "kubeconfig": (
        b64(some("-----BEGIN EC PRIVATE KEY-----\n", 160, B64)),
        (
            "    client-key-data: {}",
            "client-key-data: {}",
            '{"client-certificate-data": "LS0t", "client-key-data": "{}"}',
        ),
    ),
    "kube-token": (
        some("", 40, ALNUM),
        ("    token: {}", "kubectl --token={} get pods", "kubectl config set-credentials u --token={}"),
    ),
    "kubeadm": (
        parts((6, string.ascii_lowercase + DIGITS), ".", (16, string.ascii_lowercase + DIGITS)),
        (
            "kubeadm join 10.0.0.1:6443 --token {} --discovery-token-ca-cert-hash sha256:ab",
            "kubeadm init --token={}",
            "bootstrap-token: {}",
        ),
    ),
    "netrc": (
        STRONG,
        (
            "machine api.wandb.ai login user password {}",
            "default login anonymous password {}",
            "machine git.example.org\n  login alice\n  password {}",
            "machine x.example.org login bob account a password {}",
        ),
    ),
    "docker-auth": (
        b64(lambda r: "alice:" + STRONG(r)),
        (
            '{"auths":{"https://index.docker.io/v1/":{"auth":"{}"}}}',
            '\t\t\t"auth": "{}"',
            "X-Registry-Auth: {}",
            "'auth': '{}'",
            '{"auths": {"nvcr.io": {"auth": "{}"}}}',
            "x-registry-auth={}",
        ),
    ),
    "docker-identity": (
        uuid,
        ('"identitytoken": "{}"', '{"auths":{"x.azurecr.io":{"identitytoken":"{}"}}}', "identitytoken: {}"),
    ),
    "docker-login": (
        STRONG,
        (
            "docker login -u alice -p {} registry.example.org",
            "+ docker login nvcr.io --username '$oauthtoken' --password {}",
            "docker login -p {} -u alice",
            "podman login -u alice -p '{}' quay.io",
            "echo {} | docker login -u alice --password-stdin",
            "helm registry login -u alice -p {} x.example.org",
        ),
    ),
    "sshpass": (
        STRONG,
        (
            "sshpass -p {} ssh root@node7",
            "sshpass -p '{}' scp x y:",
            "SSHPASS={} sshpass -e ssh node7",
            "+ sshpass -p{} rsync -a x node7:",
            'sshpass -p "{}" ssh -o StrictHostKeyChecking=no node7',
        ),
    ),
    "curl-user": (
        STRONG,
        (
            "curl -u alice:{} https://api.example.org",
            "curl --user 'alice:{}' https://x",
            "wget --user=alice --password={} https://x",
            "curl -sSL -u admin:{} -X POST https://x",
        ),
    ),
    "mysql": (
        STRONG,
        ("MYSQL_PWD={}", "mysql -u root -p{} runs", "mysqldump --password={} runs", "export MYSQL_PWD='{}'"),
    ),
    "postgres": (
        STRONG,
        (
            "PGPASSWORD={} psql -h db",
            "PGPASSWORD={}",
            "host=db port=5432 user=train password={} dbname=runs",
            "connection_string: host=db user=x password={}",
        ),
    ),
    "redis": (
        STRONG,
        (
            "redis-cli -h 10.0.0.1 -a {} ping",
            "ray start --head --redis-password={}",
            "requirepass {}",
            "ray start --redis-password {} --block",
        ),
    ),
    "url-password": (
        password("!$*-._~"),
        (
            "postgresql://train:{}@db.example.org:5432/runs",
            "redis://:{}@10.0.0.1:6379/0",
            "sqlalchemy.exc.OperationalError: mysql+pymysql://u:{}@db/x failed",
            "mongodb+srv://app:{}@cluster0.example.net/?w=majority",
            "git clone https://alice:{}@git.example.org/x.git",
            "amqp://guest:{}@mq:5672/%2F",
            "HTTPS_PROXY=http://proxyuser:{}@proxy:3128",
        ),
    ),
    "connection-string": (
        PLAIN,
        (
            "Server=db;Database=x;User Id=sa;Password={};Encrypt=True",
            "Driver={ODBC};UID=sa;PWD={}",
            "Uid=sa;Pwd={};Server=x",
        ),
    ),
    "env-secret": (
        STRONG,
        (
            "DB_PASSWORD={}",
            "export SMTP_PASS='{}'",
            "MLFLOW_TRACKING_PASSWORD={}",
            "AUTH={}",
            "CREDENTIALS={}",
            "ADMIN_PWD={}",
            'declare -x VAULT_SECRET="{}"',
            "RABBITMQ_DEFAULT_PASS={}",
            "env: {'SERVICE_CREDENTIALS': '{}'}",
        ),
    ),
    "env-key": (
        LONG,
        (
            "COMET_API_KEY={}",
            "OPENAI_API_KEY={}",
            "export CLEARML_API_SECRET_KEY={}",
            "NGC_API_KEY={}",
            "SLURM_JWT_KEY={}",
            "TOGETHER_API_KEY={}",
            "declare -x SNOWFLAKE_PRIVATE_KEY={}",
            "DD_API_KEY={}",
        ),
    ),
    "env-token": (
        some("", 30),
        (
            "HUGGING_FACE_HUB_TOKEN={}",
            "CI_JOB_TOKEN={}",
            "RAY_AUTH_TOKEN={}",
            "export DISCORD_TOKEN={}",
            "CLOUDFLARE_API_TOKEN={}",
            "NEPTUNE_API_TOKEN={}",
            "MLFLOW_TRACKING_TOKEN={}",
        ),
    ),
    "yaml-secret": (
        STRONG,
        (
            "  password: {}",
            "  pwd: {}",
            "  pass: {}",
            "  passphrase: '{}'",
            "  db_pass: {}",
            "  client_secret: {}",
            '  admin-password: "{}"',
            "  secret: {}",
            "  sudo_pass: '{}'",
        ),
    ),
    "signing-key": (
        LONG,
        (
            "signing_key: {}",
            "SECRET_KEY_BASE={}",
            '"signingKey": "{}"',
            "jwt_signing_key={}",
            "hmac_key = '{}'",
            "encryption_key: {}",
            "master_key={}",
        ),
    ),
    "json-secret": (
        STRONG,
        (
            '{"user": "x", "password": "{}"}',
            "{'user': 'x', 'pwd': '{}'}",
            '{\\"user\\": \\"x\\", \\"passwd\\": \\"{}\\"}',
            "DBConfig(user='x', password='{}', port=5432)",
            '"dbPassword":"{}"',
            "{'credentials': {'user': 'x', 'secret': '{}'}}",
        ),
    ),
    "xml-secret": (
        STRONG,
        (
            "<password>{}</password>",
            "<Password>{}</Password><User>x</User>",
            '<add key="ClearTextPassword" value="{}" />',
            "<secret>{}</secret>",
        ),
    ),
    "flag-secret": (
        STRONG,
        (
            "torchrun train.py --password {} --lr 1e-4",
            "train.py --api-key={}",
            "['train.py', '--password', '{}', '--lr', '1e-4']",
            "Command '['train.py', '--db-pass', '{}']' returned non-zero exit status 1.",
            "--secret {}",
            "torchrun --nproc-per-node 8 train.py --db.password={}",
            "['train.py', '--api-key={}', '--lr', '1']",
        ),
    ),
    "unquoted-odd": (
        password(BREAKING, 12, 18),
        (
            "password={}",
            "password={} host=db",
            "DB_PASSWORD={}",
            "PASSPHRASE: {}",
            "passwd={}\tuser=x",
            "login with password: {}",
        ),
    ),
    "npmrc": (
        uuid,
        (
            "//registry.npmjs.org/:_authToken={}",
            "_authToken={}",
            "npm config set //r.example.org/:_authToken {}",
        ),
    ),
    "pypirc": (
        STRONG,
        (
            "password = {}",
            "TWINE_PASSWORD={}",
            "pip install -i https://u:{}@pypi.example.org/simple x",
            "UV_INDEX_PASSWORD={}",
        ),
    ),
    "jaas": (
        PLAIN,
        (
            'org.apache.kafka.ScramLoginModule required username="x" password="{}";',
            "sasl.plain.password={}",
            "ssl.keystore.password={}",
            "sasl_plain_password='{}'",
        ),
    ),
    "ldap": (STRONG, ("bindpw {}", "ldapsearch -D cn=x -w {}", "bind_password: {}", "ldap.bindPassword={}")),
    "slack-hook": (
        parts("T", (8, UPPER), "/B", (8, UPPER), "/", (24, ALNUM)),
        (
            "POST https://hooks.slack.com/services/{}",
            "SLACK_WEBHOOK=https://hooks.slack.com/services/{}",
            "webhook 'https://hooks.slack.com/services/{}' answered 404",
        ),
    ),
    "discord-hook": (
        some("", 68, URLSAFE),
        (
            "https://discord.com/api/webhooks/123456789012345678/{}",
            "https://discordapp.com/api/webhooks/123456789012345678/{}?wait=true",
            "hook=https://discord.com/api/webhooks/123456789012345678/{}",
        ),
    ),
    "api-header": (
        LONG,
        (
            "X-API-Key: {}",
            "PRIVATE-TOKEN: {}",
            "x-auth-token: {}",
            "'X-Vault-Token': '{}'",
            "api-key: {}",
            "Ocp-Apim-Subscription-Key: {}",
        ),
    ),
    "sentry-dsn": (
        HEX32,
        (
            "SENTRY_DSN=https://{}@o1.ingest.sentry.io/2",
            "sentry_sdk.init(dsn='https://{}@o1.ingest.sentry.io/2')",
        ),
    ),
    "file-name": (
        LONG,
        ("/scratch/runs/token={}/rank0.log", "api_key={}.txt", "open('/tmp/secret={}/x.log')"),
    ),
}
# ── lines that were written after the rules were finished, to see what they miss at first sight ─────────────
LATER: dict[str, tuple[Make, tuple[str, ...]]] = {
    "password-elsewhere": (
        STRONG,
        (
            "Environment=DB_PASSWORD={}",
            "sbatch --export=ALL,MYSQL_PASSWORD={},FOO=1 job.sh",
            '"Env": ["PATH=/usr/bin","REDIS_PASSWORD={}","HOME=/root"]',
            'execve("/usr/bin/sshpass", ["sshpass", "-p", "{}", "ssh", "n7"], 0x7ffd /* 50 vars */) = 0',
            "alice  8123  0.0  0.1 mysql -ualice -p{} runs",
            'TASK [x] changed: {"cmd": "htpasswd -b /x alice {}", "rc": 0}',
            'ok: [n7] => {"ansible_become_password": "{}"}',
            "ansible_ssh_pass={}",
            "pass = {}",
            "requests.get(url, auth=('alice', '{}'))",
            "HTTPBasicAuth('alice', '{}')",
            "client.connect('n7', username='x', password='{}')",
            "ftp://alice:{}@ftp.example.org/x",
            "mount -t cifs //srv/x /mnt -o username=alice,password={},vers=3.0",
            "ipmitool -I lanplus -H bmc7 -U admin -P {} power status",
            "echo {} | sudo -S systemctl restart x",
            "echo 'root:{}' | chpasswd",
            "openssl enc -aes-256-cbc -k {} -in x",
            "gpg --batch --passphrase {} -d x.gpg",
            "7z x -p{} data.7z",
            "unzip -P {} data.zip",
            "vault kv put secret/x password={}",
            "az login --service-principal -u app -p {} --tenant t",
            "kubectl create secret generic x --from-literal=password={}",
            "kubectl create secret docker-registry x --docker-password={}",
            "spark.jdbc.password {}",
            "javax.net.ssl.keyStorePassword={}",
            "-Djavax.net.ssl.trustStorePassword={} -jar x",
            "ARG NPM_PASS={}",
            "smtp.login('alice', '{}')",
            "psql 'postgresql:///runs?user=x&password={}'",
            "jdbc:postgresql://db/x?user=a&password={}&ssl=true",
            "LDAP bind with dn cn=x password {}",
            "initial root password: {}",
            "A temporary password is generated for root@localhost: {}",
            "Password for user alice is {}",
            "Enter password: {}",
            "environ({'DB_PASS': '{}', 'HOME': '/root'})",
            "[mysql]\nuser=x\npassword={}",
            '<property name="password" value="{}"/>',
            "<entry key='db.password'>{}</entry>",
            "passwd: {}",
            "user_password => '{}'",
            "db.example.org:5432:runs:alice:{}",
            "Namespace(lr=0.1, hub_token='{}', steps=10)",
            "celery broker amqp://worker:{}@mq//",
            "AIRFLOW_CONN_DB=postgres://a:{}@db/x",
            "mongo -u root -p {} --authenticationDatabase admin",
            "sqlcmd -S db -U sa -P {} -Q 'select 1'",
            "cqlsh -u cassandra -p {} n7",
            "etcdctl --user root:{} get /",
            'wpa_passphrase="{}"',
            "psk={}",
            "VNC password: {}",
            "code-server: Using password from config: {}",
            "terraform apply -var db_password={}",
            'variable "db_password" = "{}"',
            "TF_VAR_db_password={}",
            "rsync --password-file=<(echo {}) x y::z",
            "rclone config create x s3 secret_access_key {}",
            "SecretStr('{}')",
            "Credentials(username='a', password='{}')",
            "login: alice password: {}",
            "user alice password {}",
            "creds alice:{}@x",
            "username=alice&password={}&grant_type=password",
            "kinit: echo '{}' | kinit alice",
            'expect: send "{}\\r" password prompt',
            "net use x: /user:alice {}",
            "smbclient //s/x -U alice%{}",
            "svn co --username a --password {} x",
            "wget --http-password={} x",
            "curl --data 'password={}' x",
            'curl -d \'{"password":"{}"}\' x',
            'RUN useradd x && echo "x:{}" | chpasswd',
            "PASSWORD {}",
            "password    {}",
            'requirepass "{}"',
            "--from-literal=api-key={}",
            "helm install x --set auth.password={}",
            "helm upgrade x --set-string secrets.dbPassword={}",
        ),
    ),
    "key-elsewhere": (
        LONG,
        (
            "secret_key = {}",
            "x-goog-api-key: {}",
            'openai.api_key = "{}"',
            "OPENAI_KEY={}",
            "hf auth login --token {}",
            "huggingface-cli login --token {} --add-to-git-credential",
            "HfFolder.save_token('{}')",
            "load_dataset('x', use_auth_token='{}')",
            "login(token='{}')",
            "mc alias set minio http://m:9000 ACCESSKEY {}",
            'ray job submit --runtime-env-json \'{"env_vars": {"X_API_KEY": "{}"}}\'',
            "::add-mask::{}",
            "NEPTUNE_API_TOKEN: {}",
            "X-Figma-Token: {}",
            "x-functions-key: {}",
            "token is {}",
            "Using API key {}",
            "api key: {}",
            "Your token has been saved: {}",
            "os.environ['WANDB_API_KEY'] = '{}'",
            'os.environ["HF_TOKEN"]="{}"',
            "setenv COMET_API_KEY {}",
            "set -gx OPENAI_API_KEY {}",
            "ENV HF_TOKEN {}",
            "S3_SECRET={}",
            "MINIO_ROOT_PASSWORD={}",
            "accessKeySecret: {}",
            "AccessKeySecret={}",
            "secretKey: {}",
            "aws_secret={}",
            "webhook_secret: {}",
            "JWT_SECRET={}",
            "SECRET_KEY='{}'",
            "app.secret_key = '{}'",
            "token=eyJhbGciOi{}",
            '"refresh_token": "{}"',
            '"access_token":"{}"',
            '"id_token":"{}"',
            "grant_type=client_credentials&client_id=x&client_secret={}",
            "TrainingArguments(output_dir=x, hub_token={}, seed=1)",
            "mpirun -np 8 -x WANDB_API_KEY={} python train.py",
            "mpirun -x NCCL_DEBUG=INFO -x HF_TOKEN={} python t.py",
            "send: b'GET /x HTTP/1.1\\r\\nHost: y\\r\\nAuthorization: Bearer {}\\r\\n\\r\\n'",
            'DEBUG:urllib3.connectionpool:https://api.x.org:443 "GET /v1/y?api_key={} HTTP/1.1" 200 None',
            '"Credentials": {"AccessKeyId": "ASIAX", "SecretAccessKey": "{}"}',
            "{'runtime_env': {'env_vars': {'HF_TOKEN': '{}'}}}",
            "env_vars: {WANDB_API_KEY: {}, X: 1}",
            "hydra overrides: [+logger.api_key={}, trainer.gpus=8]",
            "+logger.wandb_key={}",
            "docker build --build-arg GITHUB_TOKEN={} .",
            "RUN pip install --extra-index-url https://__token__:{}@gitlab.x.org/simple y",
            "git remote set-url origin https://oauth2:{}@gitlab.x.org/a/b.git",
            "fatal: could not read from https://x-access-token:{}@github.com/a/b",
            'export HUGGINGFACE_TOKEN="{}" && python x.py',
            "HF_AUTH_TOKEN={}",
            "hf_token: {}",
            "Token: {}",
            "apiKey: '{}'",
            '"apiToken":"{}"',
            "ApiKey {}",
            "Authorization: ApiKey {}",
            "Authorization: Token {}",
            "authorization: {}",
            "grpc metadata: (('authorization', 'Bearer {}'),)",
            "metadata=[('x-api-key', '{}')]",
            "headers={'X-Auth-Token': '{}', 'a': 1}",
            "Header(name='x-api-key', value='{}')",
            "ngc config set apikey {}",
            "export NGC_CLI_API_KEY={}",
            "clearml: api.credentials.secret_key = {}",
            '  secret_key: "{}"',
            "comet_ml.init(api_key='{}')",
            "neptune.init_run(api_token='{}')",
            "mlflow.set_tracking_uri('https://u:{}@m.org')",
            "openai.OpenAI(api_key='{}')",
            "KeyError while using key '{}' of service api",
            "oauth_token={} expired",
            "access_token={}; scope=x",
            "?access_token={}",
            "&sig={}",
            "SLACK_BOT_TOKEN={}",
            "bot_token: {}",
            "SNOWFLAKE_PASSWORD={}",
            "GRAFANA_ADMIN_PASS={}",
            "ENCRYPTION_KEY={}",
            "DJANGO_SECRET_KEY={}",
            "session_secret={}",
            "cookie_secret = '{}'",
            "ConfigurableHTTPProxy.auth_token = '{}'",
        ),
    ),
    "hex-elsewhere": (
        HEX32,
        (
            "DATADOG_API_KEY={}",
            "dd-api-key: {}",
        ),
    ),
    "uuid-elsewhere": (uuid, ("X-Auth-Key: {}",)),
    "jwt-elsewhere": (
        jwt,
        (
            "id_token={}",
            "K8S token: {}",
            "/var/run/secrets/token {}",
        ),
    ),
}
BODY = (64, B64)


def pem(r: random.Random) -> tuple[str, str]:
    """A key of 12 lines: whole, without its end, without its beginning, escaped on one line."""
    kind = r.choice(("RSA PRIVATE", "EC PRIVATE", "OPENSSH PRIVATE", "PRIVATE"))
    lines = [parts(BODY)(r) for _ in range(12)]
    whole = [f"-----BEGIN {kind} KEY-----", *lines, f"-----END {kind} KEY-----"]
    shown = r.choice((whole, whole[:9], whole[4:], ["[rank0]: " + line for line in whole]))
    if r.random() < 0.25:
        return lines[5], json.dumps({"type": "service_account", "private_key": "\n".join(whole)})
    return lines[5], "\n".join(shown)


def broken(r: random.Random) -> tuple[str, str]:
    """A token that a terminal of fixed width broke over two lines."""
    kind = r.choice(
        ("hugging-face", "github-classic", "gitlab-personal", "anthropic", "nvidia", "xai", "groq")
    )
    secret = BARE[kind](r)
    line = f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for the given key {secret}"
    cut = len(line) - r.randint(4, len(secret) - 10)
    return secret, line[:cut] + "\n" + line[cut:] + " (try again)"


MANY_LINES: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "private-key": pem,
    "broken-token": broken,
}
KINDS = sorted([*BARE, *NAMED, *LATER, *MANY_LINES])


def plants(seed: int = 1, count: int = 1000) -> Iterator[Plant]:
    """`count` secrets, all kinds by turns, each in a surrounding drawn for it."""
    r = random.Random(seed)
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        yield (_told(kind, r) if kind in MANY_LINES else _filled(kind, r))


def _told(kind: str, r: random.Random) -> Plant:
    secret, text = MANY_LINES[kind](r)
    return Plant(kind, secret, text, False)


def _filled(kind: str, r: random.Random) -> Plant:
    make, surroundings = (BARE[kind], BARE_IN) if kind in BARE else (NAMED | LATER)[kind]
    place = r.randrange(len(surroundings))
    secret = make(r)
    unseen = place % 3 == 2 or kind in LATER
    return Plant(kind, secret, surroundings[place].replace("{}", secret), unseen)


def leaked(secret: str, text: str, most: int = 7) -> bool:
    """Whether a part of the secret that is worth something is still to be read: more than `most` characters
    that are no public prefix, or half of a short one."""
    most = min(most, len(secret) // 2)
    tail = secret[12:] if len(secret) > 30 else secret  # the issuer's prefix tells nothing
    return any(tail[at : at + most + 1] in text for at in range(max(1, len(tail) - most)))
