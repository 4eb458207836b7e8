"""Rows of one shard per rank; a row may live elsewhere."""
import ctypes, json, os, socket
import torch
from torch.utils.data import Dataset


def fetch(address):
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"GET row\n")
        return json.loads(s.makefile().readline())


def decode(blob):
    return ctypes.string_at(int(blob, 16), 64)


class Shards(Dataset):
    def __init__(self, folder, rank, features=16):
        with open(os.path.join(folder, f"shard_{rank:03d}.jsonl")) as f:
            self.rows = f.read().splitlines()
        self.features, self.cache = features, []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = json.loads(self.rows[i])
        if "at" in row:
            row = fetch(row["at"])
        if "blob" in row:
            decode(row["blob"])
        if "pages" in row:
            self.cache.append(b"\1" * (row["pages"] << 12))
        x = torch.tensor(row["x"])
        if len(x) != self.features:
            raise ValueError(f"row {i}: expected {self.features} features, got {len(x)}")
        return x, row["y"]
