"""Components installed from source: their trees are there, and editable installs lead to them."""

import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from verifying.distributions import Distribution, all_records
from verifying.image import Image, read_text, within
from verifying.outcome import Outcome, judged

SHOWN = 3  # files in a message


def sources_check(image: Image) -> Outcome:
    """Every tree, and every tree that an editable install points to, is there and holds files."""
    sources = image.manifest["sources"]
    faults = [f"{item['component']}: {fault}" for item in sources if (fault := tree_fault(image, item))]
    trees = [f"{item['component']} in {item['path']}" for item in sources if item["path"]]
    told = [f"{item['component']} without native parts ({item['without']})" for item in sources if item["without"]]
    told += [f"{item['name']} left out ({item['reason']})" for item in image.manifest.get("left_out", ())]
    return judged(faults, "; ".join([", ".join(trees) or "the manifest lists no source trees", *told]))


def tree_fault(image: Image, item: Mapping[str, Any]) -> str:
    """What is wrong with a source's tree; "" when it is there, or is not to be."""
    path = item["path"]
    if path is None:
        return "" if item["install"] == "wheel" else f"the manifest gives no path for install {item['install']}"
    if not image.exists(path):
        return f"{path} does not exist"
    if not os.path.isdir(image.path(path)):
        return f"{path} is no folder"
    return "" if any(not stat.S_ISDIR(entry.mode) for entry in image.tree(path)) else f"{path} is empty"


def install_fault(image: Image, item: Mapping[str, Any], found: Distribution) -> str:
    """How a source's distribution is not installed in the way of the manifest; "" when it is."""
    try:
        direct = json.loads(read_text(os.path.join(image.site, found.folder, "direct_url.json")) or "{}")
        editable = direct.get("dir_info", {}).get("editable") is True
        place = unquote(urlsplit(direct.get("url", "")).path)
    except (ValueError, AttributeError, TypeError):
        return f"{found.key}: {found.folder}/direct_url.json cannot be read"
    path = item["path"]
    if item["install"] == "wheel" or not path:
        return f"{found.key} is an editable install of {place}, the manifest says {item['install']}" if editable else ""
    if not editable:
        return f"{found.key} is no editable install, the manifest says of {path}{copied(image, found.key)}"
    if not within(image.path(place), image.path(path)):
        return f"{found.key} is an editable install of {place}, the manifest says {path}"
    return "" if is_led_to(image, found.key, path) else f"{found.key}: no .pth of it leads to {path}"


def copied(image: Image, key: str) -> str:
    """The modules that a distribution has in site-packages, as the end of a message; "" when it has none there."""
    rows = sorted(row.path for row in all_records(image).get(key) or () if row.path.endswith(".py"))
    names = [
        path for path in rows if within(path, image.site) and not os.path.basename(path).startswith("__editable__")
    ]
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"; its own copy is {', '.join(map(image.shown, names[:SHOWN]))}{more}"


def is_led_to(image: Image, key: str, path: str) -> bool:
    """Whether a .pth file of a distribution, or the finder that one starts, names a path or what is below it."""
    rows = all_records(image).get(key) or ()
    names = (row.path for row in rows if os.path.dirname(row.path) == image.site)
    starts = [name for name in names if name.endswith(".pth") or os.path.basename(name).startswith("__editable__")]
    wanted = "|".join(re.escape(place) for place in {path, image.path(path), os.path.realpath(image.path(path))})
    return any(re.search(rf"(?<![\w./-])({wanted})(?![\w.-])", read_text(name)) for name in starts)
