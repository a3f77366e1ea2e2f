#!/usr/bin/env python3
"""The install: programs run from where they were put, a C program finds the library by pkg-config alone, a C++ program
by CMake's find_package, the units name the daemon there."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

build = os.environ["SX_BINARY_DIR"]
source = os.environ["SX_SOURCE_DIR"]

PROGRAM = r"""
#include <symplex.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    symplex_error error = {0};
    symplex_options options = {0};
    symplex_client *client;
    options.daemon = SYMPLEX_DAEMON_NEVER;
    if (symplex_open(&options, &client, &error) != SYMPLEX_OK) { return 1; }
    symplex_program program = {0};
    symplex_dim batch = {"batch", 2};
    program.path = argv[argc - 1];
    program.dims = &batch;
    program.dim_count = 1;
    void *bytes = NULL;
    size_t size = 0;
    symplex_code code = symplex_compile(client, &program, &bytes, &size, NULL, &error);
    printf("%d %zu %s\n", (int)code, size, error.text);
    symplex_free(bytes);
    symplex_close(client);
    return code == SYMPLEX_OK && size > 0 ? 0 : 1;
}
"""

PROJECT = r"""
cmake_minimum_required(VERSION 3.25)
project(use LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 11)
find_package(symplex 0.1 CONFIG REQUIRED)
add_executable(use ${EXAMPLE})
target_link_libraries(use PRIVATE symplex::symplex)
"""


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    prefix = pathlib.Path(folder, "prefix")
    run("cmake", "--install", build, "--prefix", str(prefix))
    client = prefix / "bin" / "symplex-client"
    assert run(str(client), "--version") == run(f"{build}/bin/symplex-client", "--version")
    for unit in ("user/symplexd.service", "system/symplexd@.service"):
        text = (prefix / "lib/systemd" / unit).read_text()
        assert f"ExecStart={prefix}/bin/symplexd " in text and "/usr/bin/symplexd" not in text, unit
    for path in ("share/man/man1/symplex-client.1", "share/bash-completion/completions/symplex-client",
                 "include/symplex.h"):
        assert (prefix / path).stat().st_size > 0, path

    pkgconfig = next(prefix.glob("lib/**/symplex.pc")).parent
    environment = dict(os.environ, PKG_CONFIG_PATH=str(pkgconfig))
    flags = run("pkg-config", "--cflags", "--libs", "symplex", env=environment).split()
    pathlib.Path(folder, "use.c").write_text(PROGRAM)
    cache = dict(re.findall(r"(?m)^(\w+):\w+=(.*)$", pathlib.Path(build, "CMakeCache.txt").read_text()))
    sanitize = [f"-fsanitize={cache['SX_SANITIZE']}"] if cache["SX_SANITIZE"] else []
    binary = pathlib.Path(folder, "use")
    run(cache["CMAKE_C_COMPILER"], "-o", str(binary), f"{folder}/use.c", *flags, *sanitize)
    libraries = dict(os.environ, LD_LIBRARY_PATH=str(pkgconfig.parent))
    print(run(str(binary), f"{source}/tests/models/mlp.onnx", env=libraries), end="")

    # by CMake alone, in C++; another minor version is refused
    project = pathlib.Path(folder, "project")
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT)
    configure = ("cmake", "-S", str(project), "-B", str(project / "build"), f"-DCMAKE_PREFIX_PATH={prefix}",
                 f"-DEXAMPLE={source}/client/examples/compile_and_run.cpp",
                 "-DCMAKE_CXX_COMPILER=" + ("clang++" if "clang" in cache["CMAKE_C_COMPILER"] else "g++"),
                 "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror " + " ".join(sanitize))
    run(*configure)
    run("cmake", "--build", str(project / "build"))
    said = run(str(project / "build" / "use"), f"{source}/tests/models/mlp.onnx")
    assert said.count("sum 1.000000") == 4, said
    (project / "CMakeLists.txt").write_text(PROJECT.replace("symplex 0.1", "symplex 0.2"))
    refused = subprocess.run(configure, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0 and "version: 0.1.0" in refused.stderr, refused

    # an install into a staging folder names the final place
    run("cmake", "--install", build, "--prefix", "/opt/symplex", env=dict(os.environ, DESTDIR=f"{folder}/stage"))
    staged = pathlib.Path(folder, "stage/opt/symplex")
    assert "ExecStart=/opt/symplex/bin/symplexd " in (staged / "lib/systemd/user/symplexd.service").read_text()
    assert next(staged.glob("lib/**/symplex.pc")).read_text().startswith("prefix=/opt/symplex\n")
sys.exit(0)
