import argparse, json, os
import torch, torch.nn as nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from dataset import fetch


class Texts(Dataset):
    def __init__(self, path):
        self.rows = open(path).read().splitlines()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = json.loads(self.rows[i])
        if "at" in row:
            row = fetch(row["at"])
        return {"input_ids": torch.tensor(row["ids"]), "attention_mask": torch.ones(len(row["ids"]), dtype=torch.long), "labels": row["label"]}


class Noted(Trainer):
    def get_train_dataloader(self):
        os.makedirs("pids", exist_ok=True); open(f"pids/{self.args.process_index}", "w").write(str(os.getpid()))
        return super().get_train_dataloader()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="texts.jsonl"); p.add_argument("--timeout", type=int, default=1800); p.add_argument("--output", default="out")
    p.add_argument("--epochs", type=float, default=1); p.add_argument("--save", type=int, default=0); p.add_argument("--resume", default=None); p.add_argument("--workers", type=int, default=0)
    a = p.parse_args()
    model = BertForSequenceClassification(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, num_labels=2))
    args = TrainingArguments(a.output, per_device_train_batch_size=4, num_train_epochs=a.epochs, logging_steps=5, save_strategy="steps" if a.save else "no", save_steps=a.save or 500, report_to=[],
                             use_cpu=True, ddp_backend="gloo", ddp_timeout=a.timeout, dataloader_num_workers=a.workers, log_level="info", log_on_each_node=True)
    t = Noted(model=model, args=args, train_dataset=Texts(a.data))
    t.train(resume_from_checkpoint=a.resume)


if __name__ == "__main__":
    main()
