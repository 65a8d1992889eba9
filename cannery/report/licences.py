"""The licence of a distribution, as its METADATA has it, in SPDX's words where they are known."""

from __future__ import annotations

import re
from email.parser import HeaderParser

# Words in METADATA that mean exactly one SPDX licence. "BSD License" and "Apache Software License" mean several.
WORDS = {
    "mit license": "MIT",
    "isc license": "ISC",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd-2-clause license": "BSD-2-Clause",
    "mulan psl v2": "MulanPSL-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
# What METADATA has where there is no licence.
NONE = {"", "unknown", "none"}
# A longer text is the licence itself, not its name.
LONGEST = 100
_CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(?P<name>.+)")


def licence_of(metadata: str) -> str:
    """Return the licence that a METADATA names, "" for none: an SPDX expression, else its own words.

    `License-Expression` (PEP 639) counts first, then `License`, then the classifiers.
    """
    # Only the head: the description behind it may be long, and is no header.
    headers = HeaderParser().parsestr(metadata.partition("\n\n")[0])
    named = str(headers["License-Expression"] or headers["License"] or "").strip()
    if "\n" in named or len(named) > LONGEST or named.lower() in NONE:
        found = (_CLASSIFIER.fullmatch(str(one)) for one in headers.get_all("Classifier", ()))
        names = dict.fromkeys(match["name"] for match in found if match)
        named = next(iter(names)) if len(names) == 1 else ""
    return WORDS.get(named.lower(), named)
