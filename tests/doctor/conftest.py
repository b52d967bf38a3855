from __future__ import annotations

import pytest


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """distribution(name, version, requires): an installed package that hides a real one of that name."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name, version, requires=(), python=">=3.11"):
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")

    return install
