"""A base of another architecture needs an emulator: said at once, with what to install."""

from __future__ import annotations

import pytest

from cannery.errors import ExitCode, UnableError
from cannery.standin.io import rootfs
from cannery.standin.io.rootfs import check_emulation
from cannery.vocab import Arch


def test_without_an_emulator_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Arch] = []
    monkeypatch.setattr(rootfs, "is_registered", lambda arch: bool(asked.append(arch)))
    with pytest.raises(UnableError) as caught:
        check_emulation(Arch.ARM64, Arch.AMD64)
    assert caught.value.code is ExitCode.UNABLE
    assert "cannot run arm64 programs" in str(caught.value)
    # Where no service manager runs, the packages alone register nothing.
    assert caught.value.hint is not None
    assert caught.value.hint.split(" && ") == [
        "apt-get install qemu-user-static binfmt-support",
        "update-binfmts --enable qemu-aarch64",
    ]
    assert asked == [Arch.ARM64]


@pytest.mark.parametrize(("host", "able"), [(Arch.ARM64, False), (Arch.AMD64, True)])
def test_its_own_arch_or_an_emulator_is_enough(monkeypatch: pytest.MonkeyPatch, host: Arch, *, able: bool) -> None:
    monkeypatch.setattr(rootfs, "is_registered", lambda _: able)
    check_emulation(Arch.ARM64, host)
