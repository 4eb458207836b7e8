"""Secrets that only their surroundings tell: kind -> (how one is made, surroundings)."""

from __future__ import annotations

import string

from planted.made import (
    ALNUM,
    B64,
    BREAKING,
    DIGITS,
    HEX,
    HEX32,
    HEX40,
    LONG,
    PLAIN,
    STRONG,
    UPPER,
    URLSAFE,
    Make,
    b64,
    parts,
    password,
    some,
    uuid,
)

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
