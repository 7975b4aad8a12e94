"""The links on the package's page lead to the repository that builds it."""

import sys
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))
from publisher import repository  # noqa: E402


class Links(MetadataHookInterface):
    """Fills `urls`; without a known repository there are none."""

    def update(self, metadata: dict) -> None:
        if address := repository():
            metadata["urls"] = {
                "Repository": address,
                "Issues": f"{address}/issues",
                "Changelog": f"{address}/blob/main/CHANGELOG.md",
            }
