#!/usr/bin/env python3
"""What a built `choral` is made of, as a CycloneDX 1.6 document (JSON): sbom.py BUILD_FOLDER > choral.cdx.json

  linked    Debian packages of the shared libraries that the program asks for, as ldd finds them
  compiled  those of the headers that its objects were compiled with, as ninja noted
  bundled   those of the console's scripts
  opened    Debian packages of the libraries that it opens by name when it needs them, and Python packages whose libraries it opens when they are
            there: the pins of ./dev

The same build gives the same document: no time and no random number is in it.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[1]
LOADED = re.compile(r"(?:=> )?(/\S+) \(0x")
OPENED = re.compile(r'"(lib\w+\.so\.\d+)"')
LICENSE_OF_ALL = re.compile(r"^Files:\s*\*\s*$.*?^License:[ \t]*(\S[^\n]*)$", re.M | re.S)


def run(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"sbom: there is no {command[0]} here; the document is made where Debian packages are")
    except subprocess.CalledProcessError as error:
        sys.exit(f"sbom: {' '.join(map(str, command[:4]))} failed: {error.stderr.strip()}")


def linked_files(program):
    """The shared libraries that are loaded with it, by their own names."""
    return sorted({str(pathlib.Path(path).resolve()) for path in LOADED.findall(run("ldd", program))})


def opened_files():
    """Those that the sources name."""
    known = dict(re.findall(r"^\t(\S+) \(libc6,x86-64[^)]*\) => (\S+)$", run("/sbin/ldconfig", "-p"), re.M))
    names = {name for path in (PROJECT / "src").rglob("*.cc") if not path.name.endswith("_test.cc") for name in OPENED.findall(path.read_text(encoding="utf-8"))}
    if missing := names - set(known):
        sys.exit(f"sbom: the program opens {', '.join(sorted(missing))}, which is not here; install what cmake/packages.txt lists")
    return sorted(str(pathlib.Path(known[name]).resolve()) for name in names)


def compiled_files(build):
    """Headers outside the project that went into the program."""
    objects = [line for line in run("ninja", "-C", build, "-t", "inputs", "apps/choral").splitlines() if line.endswith(".o")]
    noted = run("ninja", "-C", build, "-t", "deps", *objects)
    return sorted({line.strip() for line in noted.splitlines() if line.startswith("    /usr/")})


def bundled_files(build):
    """A file of each library of the console; none where it was built without."""
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))
    wanted = re.findall(r"^find_path\((\w+) (\S+) ", (PROJECT / "src" / "serve" / "console" / "console.cmake").read_text(), re.M)
    found = [str((pathlib.Path(cache[variable]) / file).resolve()) for variable, file in wanted]
    return [] if any("NOTFOUND" in file for file in found) else found


def owners(files):
    """Each file's Debian package; what belongs to none is left out."""
    out = {}
    # The package manager knows some files by their names from before /usr held them all.
    names = {name: file for file in files for name in (file, file.removeprefix("/usr") if file.startswith("/usr/lib") else file)}
    if not names:
        return out
    native = run("dpkg", "--print-architecture").strip()
    asked = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True)  # fails where it knows one of them not
    for line in asked.stdout.splitlines():
        packages, _, file = line.rpartition(": ")
        # A header may be there for several architectures, each from a package of its own.
        own = [package for package in packages.split(", ") if package.partition(":")[2] in ("", "all", native)]
        if file in names and len(own) == 1 and not packages.startswith("diversion"):
            out[names[file]] = own[0]
    return out


def license_of(package):
    """What the machine-readable copyright file says of all of its files, or nothing."""
    copyright_file = pathlib.Path("/usr/share/doc") / package.partition(":")[0] / "copyright"
    found = LICENSE_OF_ALL.search(copyright_file.read_text(encoding="utf-8", errors="replace")) if copyright_file.exists() else None
    return found and found[1].strip()


def distribution():
    facts = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return f"{facts.get('ID', 'debian')}-{facts.get('VERSION_ID', '')}".replace('"', "").rstrip("-")


def debian_component(package, uses):
    name, version, architecture, source, homepage = run(
        "dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${Homepage}", package).split("\t")
    purl = f"pkg:deb/debian/{name.replace('+', '%2B')}@{version.replace('+', '%2B')}?arch={architecture}&distro={distribution()}"
    made = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "optional" if set(uses) == {"opened"} else "required",
            "properties": [{"name": "choral:source", "value": source}] +
                          [{"name": f"choral:{use}", "value": value} for use, values in sorted(uses.items()) for value in values]}
    if homepage:
        made["externalReferences"] = [{"type": "website", "url": homepage}]
    if license_name := license_of(package):
        made["licenses"] = [{"license": {"name": license_name}}]
    return made


def file_component(path, uses):
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    return {"type": "file", "bom-ref": f"file:{path}", "name": path, "scope": "required", "hashes": [{"alg": "SHA-256", "content": digest}],
            "properties": [{"name": f"choral:{use}", "value": path} for use in uses]}


def python_components():
    pins = re.search(r"^readonly kGrammarPackages=\(([^)]*)\)", (PROJECT / "dev").read_text(), re.M)[1]
    for name, _, version in (pin.partition("==") for pin in pins.split()):
        purl = f"pkg:pypi/{name}@{version}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "optional",
               "properties": [{"name": "choral:opened", "value": "where it is installed"}]}


def components(build):
    """Of everything, sorted."""
    uses, unowned = {}, []
    for use, files in (("linked", linked_files(build / "apps" / "choral")), ("opened", opened_files()), ("compiled", compiled_files(build)), ("bundled", bundled_files(build))):
        owner = owners(files)
        for file in files:
            if file in owner:
                values = uses.setdefault(owner[file], {}).setdefault(use, [])
                values += [file] if use in ("linked", "opened") else [] if values else ["headers" if use == "compiled" else "scripts"]
            elif use != "compiled":
                unowned.append(file_component(file, [use]))
    made = [debian_component(package, of) for package, of in uses.items()]
    return sorted([*made, *unowned, *python_components()], key=lambda component: component["bom-ref"])


def document(build):
    version = re.search(r"project\(Choral VERSION (\S+)", (PROJECT / "CMakeLists.txt").read_text())[1]
    program = {"type": "application", "bom-ref": "choral", "name": "choral", "version": version,
               "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((build / "apps" / "choral").read_bytes()).hexdigest()}]}
    parts = components(build)
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"component": program}, "components": parts,
            "dependencies": [{"ref": "choral", "dependsOn": [part["bom-ref"] for part in parts]}]}


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "apps" / "choral").exists():
        sys.exit(__doc__.partition("\n\n")[0] + "\nsbom: name a build folder, such as build/release, in which choral is built")
    json.dump(document(pathlib.Path(sys.argv[1]).resolve()), sys.stdout, indent=1, ensure_ascii=False)
    print()
