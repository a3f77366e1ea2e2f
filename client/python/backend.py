"""Builds the wheel with this repository's CMake and nothing else: a PEP 517 backend of the standard library, so that
`pip install ./client/python` needs no package of any registry. One wheel for CPython 3.11 and later: the extension
keeps to the stable ABI; libsymplex and the program that compiles without a daemon are inside.

--config-settings build-dir=DIR takes what is built in DIR, such as build/release; otherwise build/python is built."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal trees make equal wheels


def _field(name):
    return re.search(rf'^{name} = "(.*)"$', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.M).group(1)


def _run(*words):
    print("+", *words, flush=True)
    subprocess.run([str(w) for w in words], check=True, cwd=ROOT)


def _install(stage, settings):
    """The build's install component "python" into `stage`."""
    given = (settings or {}).get("build-dir")
    build = pathlib.Path(given).resolve() if given else ROOT / "build" / "python"
    if not given:
        _run("cmake", "--preset", "release", "-B", build, "-DSX_TESTS=OFF", "-DSX_WERROR=OFF")
        _run("cmake", "--build", build, "--target", "symplex", "symplex-client", "symplex-python")
    if not (build / "python" / "symplex" / "_c.abi3.so").exists():
        raise SystemExit(f"{build} has no Python package: it needs the headers of Python 3.11 or later (python3-dev)")
    _run("cmake", "--install", build, "--prefix", stage, "--component", "python")


def _metadata():
    return (f"Metadata-Version: 2.1\nName: {_field('name')}\nVersion: {_field('version')}\n"
            f"Summary: {_field('description')}\nLicense: Apache-2.0\n"
            f"Requires-Python: {_field('requires-python')}\n")


def entry_points():
    """By which other packages find this one: a section of an ini file for each group."""
    groups = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    return "".join(f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in names.items())
                   for group, names in groups.items())


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tag = f"cp311-abi3-linux_{platform.machine()}"
    stem = f"{_field('name')}-{_field('version')}"
    name = f"{stem}-{tag}.whl"
    info = f"{stem}.dist-info"
    with tempfile.TemporaryDirectory() as stage:
        _install(stage, config_settings)
        files = {path.relative_to(stage).as_posix(): (path.read_bytes(), os.access(path, os.X_OK))
                 for path in sorted(pathlib.Path(stage).rglob("*")) if path.is_file()}
    files[f"{info}/METADATA"] = _metadata().encode(), False
    files[f"{info}/entry_points.txt"] = entry_points().encode(), False
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes(), False
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: symplex\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
                              False)
    record = "".join("%s,sha256=%s,%d\n" % (path, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(
        b"=").decode(), len(data)) for path, (data, _) in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode(), False
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, (data, runs) in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the package is built in the repository of symplexd; there is no source distribution")
