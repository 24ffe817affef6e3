#!/usr/bin/env python3
"""Holds the tree to its map: who may include whom, headers that compile alone, links of the READMEs that lead somewhere.

    tests/architecture_test.py [unittest options]      from anywhere; needs no build
"""

import os
import re
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
MODULES = ("ring", "proto", "storage", "config", "metrics", "gateway")

# What each room may include of the tree, beside itself (README.md, "The map").
MAY_SEE = {
    "ring/base": (),
    "ring": ("ring/base",),
    "ring/kernel": ("ring", "ring/base"),
    "proto": ("ring/base",),
    "config": ("ring/base",),
    "metrics": ("ring/base",),
    "storage": ("ring", "ring/base"),
    "gateway": ("ring", "ring/base", "proto", "config", "metrics", "storage"),
}

# Doors to the outside: a pattern of system includes, and the files that may have it.
DOORS = [
    (r"liburing\.h", r"ring/kernel/"),
    (r"prometheus/.*", r"metrics/"),
    (r"toml\+\+/.*|toml\.hpp", r"config/"),
    (r"civetweb\.h", r"gateway/(admin|health)"),
    (r"ares.*\.h", r"ring/kernel/"),
    (r"CLI/.*", r"gateway/"),
    (r"spdlog/.*", r"gateway/"),
    (r"openssl/.*", r"(?!)"),                    # nobody, until TLS comes
    (r"(sys|netinet|net|arpa|linux)/.*|(unistd|fcntl|poll|signal|pthread|sched|dirent|netdb|time)\.h|csignal|ctime"
     r"|thread|mutex|shared_mutex|condition_variable|future|chrono|random|filesystem|fstream", r"ring/kernel/|gateway/main\.cpp"),
]

# (file, include): why it may, although no door above lets it.
EXCEPTIONS = {
    ("config/parse.cpp", "fstream"): "reads the file once, before anything else runs",
    ("gateway/gateway.cpp", "future"): "the start waits for each shard to have opened, and tells them to go",
    ("gateway/log_line.cpp", "chrono"): "turns given seconds into a date; reads no clock",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def sources(*suffixes):
    return sorted(path.relative_to(TOP).as_posix() for module in MODULES for suffix in suffixes
                  for path in (TOP / module).rglob(f"*{suffix}"))


def room_of(path):
    """The longest room that the path lies in."""
    return max((room for room in MAY_SEE if path.startswith(room + "/")), key=len, default=None)


class Includes(unittest.TestCase):
    def includes(self):
        for path in sources(".hpp", ".cpp"):
            for bracket, name in INCLUDE.findall((TOP / path).read_text()):
                yield path, bracket, name

    def test_each_room_sees_only_the_rooms_below_it(self):
        wrong = []
        for path, bracket, name in self.includes():
            if bracket != '"':
                continue
            seen, room = room_of(name), room_of(path)
            if seen is None or not (TOP / name).is_file():
                wrong.append(f'{path}: "{name}" is not "module/file.hpp" of this tree')
            elif seen != room and seen not in MAY_SEE[room]:
                wrong.append(f"{path}: {room} may not see {seen} ({name})")
        self.assertEqual(wrong, [])

    def test_each_door_to_the_outside_is_used_where_it_belongs(self):
        wrong = [f"{path}: <{name}> belongs to {where}" for path, bracket, name in self.includes() if bracket == "<"
                 for pattern, where in DOORS
                 if re.fullmatch(pattern, name) and not re.match(where, path) and (path, name) not in EXCEPTIONS]
        self.assertEqual(wrong, [])

    def test_every_exception_is_still_needed(self):
        had = {(path, name) for path, _, name in self.includes()}
        self.assertEqual([exception for exception in EXCEPTIONS if exception not in had], [])


class Headers(unittest.TestCase):
    def test_every_header_compiles_alone(self):
        def compile_alone(path):
            command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-x", "c++", "-I", str(TOP), "-include", path, "/dev/null"]
            done = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
            return "" if done.returncode == 0 else f"{path}:\n{done.stderr[:1500]}"
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = list(filter(None, pool.map(compile_alone, sources(".hpp"))))
        self.assertFalse(wrong, "\n".join(wrong))

    def test_every_header_is_read_once_and_says_what_it_is_for(self):
        for path in sources(".hpp"):
            with self.subTest(path):
                text = (TOP / path).read_text()
                self.assertIn("#pragma once", text)
                self.assertTrue(text.startswith("//"), "the contract stands at the top")


class Documents(unittest.TestCase):
    def test_every_link_of_a_readme_leads_to_a_file(self):
        wrong = []
        for readme in [path for path in TOP.rglob("*.md") if not {"build", "var", ".git"} & set(path.relative_to(TOP).parts)]:
            text = re.sub(r"^```.*?^```", "", readme.read_text(), flags=re.MULTILINE | re.DOTALL)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                file = target.split("#")[0]
                if file and "://" not in target and not target.startswith("mailto:") and not (readme.parent / file).exists():
                    wrong.append(f"{readme.relative_to(TOP)}: {target}")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
