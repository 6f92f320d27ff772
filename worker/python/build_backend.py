"""The build backend: meson-python's, with the wheel tagged for every Python of its platform.

The package reaches its library through ctypes, so one wheel serves all versions of Python;
meson-python tags a wheel with compiled files for the version that builds it."""
import base64
import csv
import hashlib
import io
import os
import zipfile

import mesonpy

build_editable = mesonpy.build_editable
build_sdist = mesonpy.build_sdist
get_requires_for_build_editable = mesonpy.get_requires_for_build_editable
get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist
get_requires_for_build_wheel = mesonpy.get_requires_for_build_wheel


def _retagged(folder, name):
    """Rewrites wheel `name` in `folder` as py3-none-PLATFORM; returns its new name."""
    distribution, version, _python, _abi, platform = name[:-len(".whl")].split("-")
    new_name = f"{distribution}-{version}-py3-none-{platform}.whl"
    if new_name == name:
        return name
    path, new_path = os.path.join(folder, name), os.path.join(folder, new_name)
    record_rows = []
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new_path, "w",
                                                       zipfile.ZIP_DEFLATED) as new:
        record = next(i for i in old.infolist() if i.filename.endswith(".dist-info/RECORD"))
        for info in old.infolist():
            if info is record:
                continue
            data = old.read(info)
            if info.filename.endswith(".dist-info/WHEEL"):
                lines = [line for line in data.decode().splitlines()
                         if line.strip() and not line.startswith("Tag:")]
                data = "\n".join([*lines, f"Tag: py3-none-{platform}", ""]).encode()
            new.writestr(info, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record_rows.append((info.filename, f"sha256={digest}", len(data)))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*record_rows, (record.filename, "", "")])
        new.writestr(record, text.getvalue())
    os.unlink(path)
    return new_name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _retagged(wheel_directory, name)
