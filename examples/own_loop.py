"""Your own training loop: Tagfill's losses and metrics, and nothing else of it.

The losses are functions of logits and labels, B×L each, where a label is 1 present, 0 absent or −1 unknown. Model,
data loader, optimiser and loop are yours; here they are plain PyTorch on features of each image.

    python examples/own_loop.py

Some seconds, and two minutes the first time, for the features of 1,200 scenes.
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

# Tensors of your own go here: N×D inputs, and N×L labels with gaps.
data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
part = tagfill.protocols.single_positive(data, seed=1200)
pooled = tagfill.features(data).view("eval").pooled
inputs, test_inputs = (torch.from_numpy(pooled(data.split(name))) for name in ("train", "test"))
labels, test_labels = torch.from_numpy(part.labels("train").dense()), data.labels("test").dense()

losses = {
    "ignore unknown": lambda logits, z, epoch: tagfill.losses.ignore_unknown(logits, z),
    "assume negative": lambda logits, z, epoch: tagfill.losses.assume_negative(logits, z),
    "large loss": lambda logits, z, epoch: tagfill.losses.large_loss(logits, z, rate=0.005 * epoch),
    "expected positives": lambda logits, z, epoch: tagfill.losses.expected_positive(logits, z, expected=3.0),
}
print(f"{'loss':<24}{'test mAP':>10}")
for name, loss_of in losses.items():
    torch.manual_seed(0)
    model = torch.nn.Linear(inputs.shape[1], labels.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True)
    for epoch in range(args.epochs):
        for features, z in loader:
            loss = loss_of(model(features), z, epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.inference_mode():
        scores = model(test_inputs).numpy()
    print(f"{name:<24}{100 * tagfill.metrics.mean_average_precision(scores, test_labels):>10.1f}")
