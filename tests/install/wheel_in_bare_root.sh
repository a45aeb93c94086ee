#!/usr/bin/env bash
# Installs a wheel into an empty virtual environment of a bare Debian, which has Python and no compiler, runs the package's tests there that
# need no other package, then the demo. Run by hand, as root: it makes the Debian with debootstrap.
#   wheel_in_bare_root.sh WHEEL [SUITE]      bookworm has CPython 3.11, trixie 3.13, sid 3.14
# KEEP=DIR: a folder for the Debian, made there once and kept; by default it is removed at the end.
set -euo pipefail
wheel=$(realpath "${1:?WHEEL}") suite=${2:-bookworm}
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
root=${KEEP:-$(mktemp -d)}
mkdir -p "$root"
end() {
  umount -lR "$root/proc" 2>/dev/null || true
  [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root"
}
trap end EXIT

if [ ! -x "$root/usr/bin/python3" ]; then
  mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1)
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$suite" "$root" ${mirror:+"$mirror"}
fi
# How this machine reaches the Python package index.
cp -L --remove-destination /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do [ ! -f "$file" ] || cp -L "$file" "$root/etc/"; done
mount -t proc proc "$root/proc"
rm -rf "$root/srv/choral"
mkdir -p "$root/srv/choral"
git -C "$checkout" archive HEAD README.md dev CMakeLists.txt include docs python examples/adapters tests/python tests/e2e tests/data | tar -x -C "$root/srv/choral"
cp "$wheel" "$root/srv/"

settings=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_CERT; do settings+=(${!name:+"$name=${!name}"}); done
# shellcheck disable=SC2016  # what stands there is for the shell in the Debian
chroot "$root" env -i "${settings[@]}" bash -euo pipefail -c '
  ! command -v cc g++ gcc clang
  python3 --version
  python3 -m venv --clear /srv/venv
  /srv/venv/bin/pip install --quiet "/srv/$0"
  cd /srv/choral/tests/python
  for part in llm async_llm forms ops; do
    echo "== $part"
    /srv/venv/bin/python "${part}_test.py" "$(/srv/venv/bin/python -c "from choral.program import program; print(program())")"
  done
  /srv/venv/bin/choral doctor
  /srv/venv/bin/python -m choral demo' "$(basename "$wheel")"
