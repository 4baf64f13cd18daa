"""What `make install` leaves behind: a program that another C program can be built on, and nothing beyond the
header's names."""

import json
import os
import re
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "lfm3-mlx4")
HEADER = os.path.join(ROOT, "include", "lanewise.h")
OUT = os.environ.get("LW_TEST_OUT", "build/native")
PREFIX = "/usr"
QUESTION = "Say \"hello\" to the harbour."
SECONDS = 120

pytestmark = [
    pytest.mark.skipif(not OUT.endswith("native"), reason=f"libraries are built natively only, not in {OUT}"),
    pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "build", "liblanewise.so")),
                       reason="build/liblanewise.so is not built: make"),
]


def done(command, **more):
    """Standard output of a command that has to succeed."""
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS, check=False, **more)
    assert ran.returncode == 0, f"{command}: {ran.stderr.decode()}"
    return ran.stdout.decode()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The tree that make install makes. Its last command is run as make would; what stands built is not built anew."""
    to = tmp_path_factory.mktemp("root")
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    plan = done(["make", "-n", "install", f"DESTDIR={to}", f"PREFIX={PREFIX}"], cwd=ROOT, env=env)
    install = [line for line in plan.splitlines() if "tools/install" in line]
    assert len(install) == 1, plan
    done(["sh", "-c", install[0]], cwd=ROOT)
    return to


def declared():
    with open(HEADER, encoding="utf-8") as file:
        return set(re.findall(r"^LW_API [^;]*?\b(lw_\w+)\(", file.read(), re.M))


def defined(*command):
    return {line.split()[2] for line in done(["nm", *command]).splitlines() if len(line.split()) == 3}


def test_libraries_show_the_names_of_the_header_and_no_other(root):
    names = declared()
    assert len(names) > 20
    lib = root / "usr" / "lib"
    assert defined("-D", "--defined-only", lib / "liblanewise.so") == names
    assert defined("-g", "--defined-only", lib / "liblanewise.a") == names


def test_the_shared_library_says_which_interface_it_is(root):
    text = done(["readelf", "-d", root / "usr" / "lib" / "liblanewise.so"])
    assert re.search(r"SONAME.*\[liblanewise\.so\.0\]", text), text
    assert os.path.islink(root / "usr" / "lib" / "liblanewise.so")


def test_what_is_installed_stands_where_it_belongs(root):
    for path in ["bin/lanewise", "include/lanewise.h", "lib/liblanewise.a", "lib/liblanewise.so.0",
                 "lib/pkgconfig/lanewise.pc", "share/man/man1/lanewise.1", "share/lanewise/models"]:
        assert (root / "usr" / path).exists(), path
    version = done([root / "usr" / "bin" / "lanewise", "--version"]).split()[1]
    assert f"Version: {version}\n" in (root / "usr" / "lib" / "pkgconfig" / "lanewise.pc").read_text()


def flags(root, *which):
    env = dict(os.environ, PKG_CONFIG_PATH=f"{root}/usr/lib/pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(root),
               PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1", PKG_CONFIG_ALLOW_SYSTEM_LIBS="1")
    return done(["pkg-config", *which, "lanewise"], env=env).split()


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
@pytest.mark.parametrize("linking", ["shared", "static"])
def test_the_example_replies_as_lanewise_run_does(root, tmp_path, linking):
    program = tmp_path / "reply"
    compiler = [os.environ.get("CC", "cc"), "-std=c17", "-Wall", "-Wextra", "-Werror", "-o", program]
    libs = flags(root, "--libs") if linking == "shared" else flags(root, "--libs", "--static")
    if linking == "static":
        libs = [f"{root}/usr/lib/liblanewise.a" if lib == "-llanewise" else lib for lib in libs]
    done([*compiler, os.path.join(ROOT, "examples", "reply.c"), *flags(root, "--cflags"), *libs])
    env = dict(os.environ, LD_LIBRARY_PATH=f"{root}/usr/lib") if linking == "shared" else None
    said = done([program, MODEL, QUESTION], env=env)
    asked = [root / "usr" / "bin" / "lanewise", "run", MODEL, "-p", QUESTION, "--max-tokens", "200", "--json"]
    wanted = json.loads(done(asked))["text"]
    assert wanted.strip()
    assert said == wanted + "\n"


def test_cxx_programs_may_include_the_header(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    source = tmp_path / "use.cc"
    source.write_text("#include <lanewise.h>\nint main() { return lw_version() == nullptr; }\n", encoding="utf-8")
    done(["g++", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-fsyntax-only", source])
