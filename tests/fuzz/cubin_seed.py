"""Cubins as the assemblers of CUDA 12 and 13 lay them out, written without them and without the reader under test.

cubin(abi, arch, kernels, ...) gives the bytes; a kernel is a dict of what its record is to say."""
import struct

INFO, COMPAT, CODE, SYMBOLS, STRINGS, NOTES, NO_BITS = 0x70000000, 0x70000086, 1, 2, 3, 7, 8
PAYLOAD, HALF, BYTE, BARE = 4, 3, 2, 1


def payload(attribute, *words):
    return struct.pack("<BBH", PAYLOAD, attribute, 4 * len(words)) + struct.pack("<%dI" % len(words), *words)


def short(kind, attribute, value):
    return struct.pack("<BBH", kind, attribute, value)


def attributes(k, abi):
    out = payload(0x37, 130 if abi == 8 else 129)
    for ordinal, (offset, size) in reversed(list(enumerate(k.get("params", [])))):
        where = ordinal | offset << 16
        out += payload(0x45, 0, where, size) if size >= 1 << 14 else payload(0x17, 0, where, size << 18 | 0x1f000)
    if k.get("cluster_explicit"):
        out += short(BARE, 0x3e, 0)
    for name, attribute in (("cluster", 0x3d), ("block_max", 0x05), ("block", 0x10)):
        if name in k:
            out += payload(attribute, *k[name])
    if "cluster_max" in k:
        out += payload(0x3f, k["cluster_max"])
    out += short(HALF, 0x50, 0) + short(HALF, 0x1b, k.get("registers_max", 255))
    if k.get("barriers") and abi == 8:
        out += short(BYTE, 0x4c, k["barriers"])
    out += payload(0x39, 0x110, 0xff, 0, 0x70100)
    if "mbarriers" in k:
        out += short(HALF, 0x38, k["mbarriers"])
    if k.get("spills"):
        out += payload(0x55, *[w for i in range(k["spills"]) for w in (1, 16 * i)])
    out += payload(0x1c, 0x40)
    if k.get("params"):
        offset, size = k["params"][-1]
        out += short(HALF, 0x19, offset + size)
    return out


def note(tool, version):
    strings = b"\0" + tool + b"\0" + version + b"\0build\0-arch\0"
    at = (1, 2 + len(tool), 3 + len(tool) + len(version), 9 + len(tool) + len(version))
    text = struct.pack("<6I", 2, 0, *at) + strings
    text += bytes(-len(text) % 4)
    return struct.pack("<III", 12, len(text), 2000) + b"NVIDIA Corp\0" + text


class Strings:
    def __init__(self):
        self.data = b"\0"

    def put(self, text):
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text) - 1


def cubin(abi, arch, kernels, specific=False, tool=None, version=b""):
    """Sections: none, two of strings, symbols, notes, .nv.info, .nv.compat, then four of each kernel."""
    names, strings, sections = Strings(), Strings(), []

    def section(name, kind, data, flags=0, size=None, link=0, info=0, entry=0):
        sections.append((names.put(name), kind, flags, data, len(data) if size is None else size, link, info, entry))
        return len(sections) - 1

    section("", 0, b"")
    section(".shstrtab", STRINGS, b"")
    section(".strtab", STRINGS, b"")
    section(".symtab", SYMBOLS, b"", link=2, entry=24)
    if tool:
        section(".note.nv.tkinfo", NOTES, note(tool, version))
    info = section(".nv.info", INFO, b"", link=3)
    if abi == 8:
        section(".nv.compat", COMPAT, short(BYTE, 9, int(specific)) + short(HALF, 7, 257) + payload(11, 9))
    symbols, words = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)], b""
    for k in kernels:
        bars = k.get("barriers", 0) << 20 if abi == 7 else 0
        text = section(".text." + k["name"], CODE, bytes(k["code"]), flags=6 | bars, link=3, info=len(symbols))
        section(".nv.info." + k["name"], INFO, attributes(k, abi), flags=0x40, link=3, info=text)
        reserved = 1024 if arch >= 90 else 0
        if "shared" in k:
            section(".nv.shared." + k["name"], NO_BITS, b"", flags=0x43, size=k["shared"] + reserved, info=text)
        helper = struct.pack("<IBBHQQ", strings.put("$%s$helper" % k["name"]), 2, 0, text, 16, 16)
        entry = struct.pack("<IBBHQQ", strings.put(k["name"]), 0x12, 0x10, text, 0, k["code"])
        symbols += [helper, entry]
        words += payload(0x2f, len(symbols) - 1, k["registers"]) + payload(0x11, len(symbols) - 2, 4)
        words += payload(0x11, len(symbols) - 1, k.get("frame", 0))
        words += payload(0x12, len(symbols) - 1, k.get("stack", 0))
    section(".nv.shared.reserved.0", NO_BITS, b"", flags=3, size=64)
    body, table = b"", b""
    content = {1: names.data, 2: strings.data, 3: b"".join(symbols), info: words}
    for index, (name, kind, flags, data, size, link, target, entry) in enumerate(sections):
        data = content.get(index, data)
        size = len(data) if index in content else size
        table += struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, 64 + len(body), size, link, target, 4, entry)
        body += data + bytes(-len(data) % 8)
    ident = bytes([0x7f, 69, 76, 70, 2, 1, 1, 0x41 if abi == 8 else 0x33, abi])
    flags = arch << 8 | 4 if abi == 8 else arch | 0x500 | (0x800 if specific else 0) | arch << 16
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, 190, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64,
                       len(sections), 1)
    return head + body + table


SECOND = {"name": "z_second", "code": 256, "registers": 4, "block_max": (256, 1, 1), "registers_max": 128}
RING = {"name": "ring", "code": 896, "registers": 154, "registers_max": 224, "frame": 16, "stack": 24, "spills": 3,
        "shared": 4104, "barriers": 5, "mbarriers": 2, "block": (96, 3, 1), "cluster": (2, 1, 1),
        "cluster_explicit": True, "params": [(0, 8), (64, 128), (192, 20000)]}
SEEDS = {
    "hopper": cubin(8, 90, [SECOND, RING], specific=True, tool=b"ptxas",
                    version=b"Cuda compilation tools, release 13.0, V13.0.88"),
    "ampere": cubin(7, 80, [{"name": "plain", "code": 384, "registers": 8, "params": [(0, 8), (8, 4)], "barriers": 3,
                             "shared": 4096, "cluster_max": 4}]),
    "add": cubin(7, 80, [{"name": "add", "code": 256, "registers": 12, "barriers": 1, "shared": 512, "stack": 16,
                          "spills": 2, "params": [(0, 8), (8, 8), (16, 4), (20, 4)]}]),
    "empty": cubin(8, 120, []),
}
