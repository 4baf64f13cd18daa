#!/usr/bin/env python3
"""What Intel's offline compiler makes of the xpu kernels, and what must hold of it. ocloc's exit code says little:
it is 0 for calls of functions that nobody has and for instructions that the device lacks. So the SPIR-V is read
word by word, and of each device's build the text, the image's own description and the instructions.

    tests/xpu/compiler.py            the figures of build/native, as tests/xpu/registers.txt has them
    tests/xpu/compiler.py --write    makes them that file; why they changed belongs into the commit

test_compiler.py is its other user."""
import argparse
import concurrent.futures
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPIRV = ROOT / "build" / "native" / "xpu"
TABLE = ROOT / "tests" / "xpu" / "registers.txt"
OCLOC = shutil.which("ocloc")
# As module.c hands them to the driver.
BUILD_FLAGS = "-ze-opt-greater-than-4GB-buffer-required -cl-fp32-correctly-rounded-divide-sqrt"
SETS = {"common": ("tgllp", "dg1", "acm-g10", "pvc"), "dpas": ("pvc",)}
LANES = 16
# Functions that no kernel file has and every driver's compiler does: DPAS and two-dimensional block reads, which
# SPIR-V leaves as calls.
DPAS_IMPORTS = re.compile(r"_Z\d+(intel_sub_group_\w*matrix_mad_k\d+|intel_sub_group_2d_block_\w+)|"
                          r"__builtin_IB_(sub_?group)_\w*block_(read|write)_flat_\w+|__builtin_IB_sub_group\w*dpas\w*")
# In the compiler's own form of a kernel, a value of a loop that only ever takes itself: some update of it was lost.
UNCHANGED = re.compile(r"^\s*(%[\w.]+) = phi .*\[ \1, ")


@dataclass
class Spirv:
    """What a SPIR-V module says of itself."""
    kernels: dict = field(default_factory=dict)       # name: its execution modes, {mode: operands}
    imports: list = field(default_factory=list)       # functions that somebody else has to have
    capabilities: set = field(default_factory=set)
    uses_mad: bool = False                            # what contraction makes of a product and a sum, and mad()


CAPABILITY, ENTRY_POINT, EXECUTION_MODE, DECORATE, VARIABLE = 17, 15, 16, 71, 59
EXTENDED, FUNCTION, FUNCTION_CALL, ADD, SUBTRACT, MULTIPLY = 12, 54, 57, 129, 131, 133
LINKAGE, IMPORT, SUBGROUP_SIZE, CONTRACTION_OFF, FLOAT64, MAD = 41, 1, 35, 31, 10, 42
MAY_CONTRACT = "a product enters a sum"


def may_contract(function, calls, fusible, seen):
    """Whether a function, or one that it calls, adds a product: where neither, SPIR-V says nothing of contraction."""
    seen.add(function)
    return function in fusible or any(may_contract(called, calls, fusible, seen)
                                      for called in calls.get(function, ()) if called not in seen)


def spirv_text(words, at):
    """A string's bytes lie in whole words, the last of them padded with zeros."""
    raw = struct.pack(f"<{len(words) - at}I", *words[at:])
    text = raw.split(b"\0", 1)[0]
    return text.decode(), at + len(text) // 4 + 1


def spirv_read(path):
    raw = Path(path).read_bytes()
    words = struct.unpack(f"<{len(raw) // 4}I", raw)
    if words[0] != 0x07230203:
        raise ValueError(f"{path}: no SPIR-V")
    found, ids, imports, variables, at = Spirv(), {}, {}, set(), 5
    function, calls, products, fusible = 0, {}, set(), set()
    while at < len(words):
        length, op = words[at] >> 16, words[at] & 0xFFFF
        if length == 0 or at + length > len(words):
            raise ValueError(f"{path}: cut short at word {at}")
        w = words[at:at + length]
        if op == CAPABILITY:
            found.capabilities.add(w[1])
        elif op == ENTRY_POINT:
            ids[w[2]] = spirv_text(w, 3)[0]
            found.kernels[ids[w[2]]] = {}
        elif op == EXECUTION_MODE:
            found.kernels[ids[w[1]]][w[2]] = w[3:]
        elif op == VARIABLE:
            variables.add(w[2])
        elif op == DECORATE and w[2] == LINKAGE:
            name, kind = spirv_text(w, 3)
            if w[kind] == IMPORT:
                imports[w[1]] = name
        elif op == EXTENDED:
            found.uses_mad = found.uses_mad or w[4] == MAD
        elif op == FUNCTION:
            function = w[2]
        elif op == FUNCTION_CALL:
            calls.setdefault(function, set()).add(w[3])
        elif op == MULTIPLY:
            products.add(w[2])
        elif op in (ADD, SUBTRACT) and products.intersection(w[3:]):
            fusible.add(function)
        at += length
    for kernel, name in ids.items():
        found.kernels[name][MAY_CONTRACT] = may_contract(kernel, calls, fusible, set())
    # The built-in variables (ids, sizes) are imports by the letter, which are no functions.
    found.imports = sorted(name for at, name in imports.items() if at not in variables)
    return found


def spirv_faults(spirv, wants_dpas):
    for name, modes in spirv.kernels.items():
        if modes.get(SUBGROUP_SIZE) != (LANES,):
            yield f"{name}: its sub-groups are not said to be {LANES} wide"
        if modes[MAY_CONTRACT] and CONTRACTION_OFF not in modes:
            yield f"{name}: contraction is not off"
    for name in spirv.imports:
        if not (wants_dpas and DPAS_IMPORTS.fullmatch(re.sub(r"(mad_k\d+)\w+$", r"\1", name))):
            yield f"calls {name}, which nothing here has"
    if spirv.uses_mad:
        yield "contraction is not off, or mad() was called: its roundings are the compiler's"
    if FLOAT64 in spirv.capabilities and not wants_dpas:
        yield "uses double, which devices without DPAS lack"


@dataclass
class Kernel:
    """One kernel on one device."""
    lanes: int = 0
    memory_bytes: int = 0       # of a thread: spills, and arrays that did not become registers
    registers: int = 0          # that variables were given
    instructions: int = 0
    dpas: int = 0
    unchanged: str = ""         # a line of the compiler's own form that no sound kernel has


def section_read(image, wanted):
    """A section of a little-endian 64-bit ELF file."""
    table, = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)

    def header(index):
        return struct.unpack_from("<IIQQQQ", image, table + 64 * index)
    names_at = header(names)[4]
    for index in range(count):
        name, _, _, _, begin, length = header(index)
        if image[names_at + name:].split(b"\0", 1)[0] == wanted:
            return image[begin:begin + length].decode()
    raise ValueError(f"the image has no {wanted.decode()}")


def info_read(image, kernels):
    info = section_read(image, b".ze_info").partition("\nkernels_misc_info:")[0]
    for text in info.split("\n  - name:")[1:]:
        name = text.split()[0]
        if name == "Intel_Symbol_Table_Void_Program":
            continue
        kernel = kernels.setdefault(name, Kernel())
        kernel.lanes = int(re.search(r"simd_size:\s+(\d+)", text).group(1))
        memory = text.partition("per_thread_memory_buffers:")[2]
        for size, of_lane in re.findall(r"\n\s+size:\s+(\d+)(\n\s+is_simt_thread:\s+true)?", memory):
            kernel.memory_bytes += int(size) * (kernel.lanes if of_lane else 1)


def listing_read(text, kernels, register_bytes):
    name = re.search(r"^//\.kernel (\S+)", text, re.M).group(1)
    if name not in kernels:
        return
    kernel, used = kernels[name], set()
    for size, first, offset in re.findall(r"^//\.declare .* rf=r size=(\d+) .*\(r(\d+)\.(\d+)\)", text, re.M):
        begin = int(first) * register_bytes
        used.update(range(begin // register_bytes, (begin + int(size) + register_bytes - 1) // register_bytes))
    kernel.registers = len(used)
    kernel.instructions = int(re.search(r"^//\.instCount (\d+)", text, re.M).group(1))
    kernel.dpas = len(re.findall(r"^\s*(?:\(\S+\)\s+)?dpasw?\.", text, re.M))


def own_form_read(text, kernels):
    """Of LLVM's text, behind all optimisation."""
    kernel = Kernel()
    for line in text.splitlines():
        if line.startswith("define "):
            kernel = kernels.get(re.search(r"@\"?([\w.]+)", line).group(1), Kernel())
        elif UNCHANGED.match(line):
            kernel.unchanged = kernel.unchanged or line.strip()


def ocloc(arguments, folder, **more):
    env = {**os.environ, **more}
    return subprocess.run([OCLOC, *arguments], cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1200, check=False)


def compiler_version():
    with tempfile.TemporaryDirectory() as folder:
        ocloc(["query", "OCL_DRIVER_VERSION"], folder)
        path = Path(folder, "OCL_DRIVER_VERSION")
        return path.read_text().strip("\0 \n") if path.exists() else "unknown"


def device_build(spirv, device, with_own_form=True):
    """(kernels by name, what ocloc printed) of a SPIR-V file on one device. All that the compiler can write down takes
    twice the time of compiling: what is read is asked for."""
    dumps = {"IGC_ShaderDumpEnable": "1", "IGC_ShaderDumpFilter": r".*(_optimized\.ll|\.asm)$"} if with_own_form else {
        "IGC_EnableVISAOutput": "1"}
    with tempfile.TemporaryDirectory() as folder:
        listings = Path(folder, "listings")
        done = ocloc(["compile", "-spirv_input", "-file", str(spirv), "-device", device, "-out_dir", folder,
                      "-output", "image", "-output_no_suffix", "-options", BUILD_FLAGS,
                      "-internal_options", "-cl-intel-allow-zebin"], folder,
                     IGC_DumpToCustomDir=str(listings), **dumps)
        kernels, image = {}, Path(folder, "image")
        if done.returncode == 0 and image.exists():
            info_read(image.read_bytes(), kernels)
            for listing in listings.glob("*.asm"):
                listing_read(listing.read_text(errors="replace"), kernels, 64 if device == "pvc" else 32)
            for form in listings.glob("*_optimized.ll"):
                own_form_read(form.read_text(errors="replace"), kernels)
        return kernels, done.stdout


def build_faults(device, kernels, printed, wants_dpas):
    if "INVALID" in printed:
        yield "the device lacks an instruction: " + next(t for t in printed.splitlines() if "INVALID" in t)
    if not kernels:
        yield "nothing was built: " + printed[:2000]
    for name, kernel in kernels.items():
        if kernel.lanes != LANES:
            yield f"{name}: {kernel.lanes} lanes"
        if kernel.memory_bytes > 0:
            yield f"{name}: {kernel.memory_bytes} bytes of a thread's memory: it spills, or an array is no register"
        if kernel.instructions == 0:
            yield f"{name}: no listing"
        if kernel.dpas and not wants_dpas:
            yield f"{name}: DPAS on a device without"
        if kernel.unchanged:
            yield f"{name}: the compiler lost what a loop changes: {kernel.unchanged}"


def source_spirv(source, folder, device="tgllp"):
    """For tests of the checks themselves: SPIR-V of a few lines, built as xpu.mk builds the kernels."""
    Path(folder, "probe.cl").write_text(source)
    done = ocloc(["compile", "-spv_only", "-file", "probe.cl", "-device", device, "-out_dir", folder, "-output", "probe",
                  "-output_no_suffix", "-options", "-cl-std=CL1.2"], folder)
    path = Path(folder, "probe.spv")
    if not path.exists():
        raise RuntimeError(done.stdout)
    return path


def listed():
    """{kernel: its sets}, as kernels.list says to the C compiler."""
    done = subprocess.run(["cc", "-E", "-P", "-x", "c", "-Isrc", "-DLW_XPU_KERNEL(name)=lw_##name common dpas;",
                           "-DLW_XPU_KERNEL_COMMON(name)=lw_##name common;",
                           "-DLW_XPU_KERNEL_DPAS(name)=lw_##name dpas;", "src/device/xpu/kernels.list"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, check=True)
    return {name: sets.split() for name, sets in re.findall(r"(lw_\w+) ([a-z ]+);", done.stdout)}


def sets_built():
    return {name: SPIRV / f"{name}.spv" for name in SETS if (SPIRV / f"{name}.spv").exists()}


def builds(sets):
    """{(set, device): (kernels, printed)}; devices in parallel. The compiler's own form is much the same on all of a
    set's devices: the first one's stands for it."""
    jobs = [(name, device) for name in sets for device in SETS[name]]

    def build(job):
        name, device = job
        return device_build(sets[name], device, device == SETS[name][0])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(build, jobs)))


def table_text(built):
    lines = ["# The kernels on Intel's offline compiler, a column for each device: registers that variables were given /",
             "# instructions / bytes of a thread's memory. `tests/xpu/compiler.py --write` rewrites it; why a figure",
             "# changed belongs into the commit.", f"compiler {compiler_version()}"]
    for name in dict.fromkeys(name for name, _ in built):
        devices = SETS[name]
        lines.append(f"{'set ' + name:28}" + "".join(f"{device:>15}" for device in devices))
        for kernel in sorted(built[name, devices[0]][0]):
            cells = (built[name, device][0].get(kernel, Kernel()) for device in devices)
            lines.append(f"{kernel:28}" + "".join(
                f"{f'{c.registers}/{c.instructions}/{c.memory_bytes}':>15}" for c in cells))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="rewrite tests/xpu/registers.txt")
    arguments = parser.parse_args()
    if OCLOC is None or not sets_built():
        sys.exit("compiler.py: no ocloc (Debian: intel-opencl-icd), or `make` made no SPIR-V")
    text = table_text(builds(sets_built()))
    if arguments.write:
        TABLE.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
