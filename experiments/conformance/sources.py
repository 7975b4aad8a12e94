"""Where the public implementations are, and their commits.

`python experiments/conformance/run.py FOLDER` clones them into a folder
and tries all of them; an adapter beside this file takes its own from
there. None of their code is part of this book.
"""

import os
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("CONFORMANCE_SOURCES", "sources"))
SOURCES = {  # adapter: repository, commit
    "annotated": (
        "harvardnlp/annotated-transformer",
        "debc9fd747bb2123160a98046ad1c2d4da44a567",
    ),
    "jadore801120": (
        "jadore801120/attention-is-all-you-need-pytorch",
        "132907dd272e2cc92e3c10e6c4e783a87ff8893d",
    ),
    "hyunwoongko": (
        "hyunwoongko/transformer",
        "63286547b9cd174a6cfc204832271814d685181f",
    ),
    "hkproj": (
        "hkproj/pytorch-transformer",
        "3beddd2604bfa5e0fbd53f52361bd887dc027a8c",
    ),
    "gordicaleksa": (
        "gordicaleksa/pytorch-original-transformer",
        "d5b29a41c5c3f68e1bcd0c528a58281632fa9d6d",
    ),
    "d2l": (
        "d2l-ai/d2l-en",
        "23d7a5aecceee57d1292c56e90cce307f183bb0a",
    ),
    "labml": (
        "labmlai/annotated_deep_learning_paper_implementations",
        "e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53",
    ),
    "joeynmt": (
        "joeynmt/joeynmt",
        "cdc4d03d430a1b0f29793a0d95743c5e72ae2f6c",
    ),
    "bentrevett": (
        "bentrevett/pytorch-seq2seq",
        "b3cd54c72cd6e4e63f672d334c795b4fe744ef92",
    ),
    "samlynnevans": (
        "SamLynnEvans/Transformer",
        "49e01800aab01dcd83403a056c059f429a7d7512",
    ),
    "devjwsong": (
        "devjwsong/transformer-translator-pytorch",
        "1e95679d541388d15751aba83b6c3816b6d2a647",
    ),
    "brandokoch": (
        "brandokoch/attention-is-all-you-need-paper",
        "0ff17617e29e9d80219380665ae23772c81e9cd5",
    ),
    "dreamgonfly": (
        "dreamgonfly/transformer-pytorch",
        "c31e163ed57321e405771ef7fb556d4d92fd5efb",
    ),
    "tanjeffreyz": (
        "tanjeffreyz/attention-is-all-you-need",
        "2a2c0bd386c81e6118f1d23e9a2a3f54ace93e50",
    ),
    "tunz": (
        "tunz/transformer-pytorch",
        "e7266679f0b32fd99135ea617213f986ceede056",
    ),
    "aladdinpersson": (
        "aladdinpersson/Machine-Learning-Collection",
        "3b8992fe274f31df61464fc127cde9ffb34896e7",
    ),
    "ajhalthor": (
        "ajhalthor/Transformer-Neural-Network",
        "9ad642b12927714928105a78be24a1494fb7b6f6",
    ),
    "nanogpt": (
        "karpathy/nanoGPT",
        "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    ),
    "mingpt": (
        "karpathy/minGPT",
        "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    ),
    "rasbt": (
        "rasbt/LLMs-from-scratch",
        "6b68eebf83266eb1633bf4b8233f55ab55ba626c",
    ),
    "pbloem": (
        "pbloem/former",
        "ad9cc703b0b82a24a12e777f5946296f352c9d11",
    ),
}


def use(name: str, *parts: str) -> Path:
    """Make a clone's modules importable; returns its folder."""
    folder = FOLDER.joinpath(name, *parts).resolve()
    sys.path.insert(0, str(folder))
    return folder
