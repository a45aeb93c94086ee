#!/usr/bin/env bash
# The kit of tests/gpu/first_day.sh: programs, the plug-in and the libraries that they load, stripped, in gpu-kit/kit.tar.xz. Called by
# ./dev gpu-kit, which has built them. What the kit's programs read besides, they find in the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly most_mib=18 newest_glibc=2.36
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/lib" "$work/plugin" gpu-kit
cp "${CHORAL_PROGRAM:-build/release/apps/choral}" build/dev/plugins/cuda/choral_cuda_device_test build/dev/plugins/cuda/kernels/choral_cuda_kernels_device_test \
  build/dev/tests/golden/choral_golden_test build/dev/tests/plugins/choral_plugins_test "$work/bin"
cp "${1:-build/cuda/libchoral_plugin_cuda.so}" "$work/plugin"
# All but the C and C++ runtimes, which are the machine's own.
for program in "$work"/bin/* "$work"/plugin/*; do ldd "$program"; done | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} "$work/lib"
strip "$work"/bin/* "$work"/lib/* "$work"/plugin/*
newest=$(objdump -T "$work"/bin/* "$work"/lib/* "$work"/plugin/* 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" "GLIBC_$newest_glibc" | sort -V | tail -n 1)" = "GLIBC_$newest_glibc" ] ||
  { echo "the kit wants $newest, newer than GLIBC_$newest_glibc" >&2 && exit 1; }
tar -C "$work" -c . | xz -9e >gpu-kit/kit.tar.xz
size=$(stat -c %s gpu-kit/kit.tar.xz)
echo "gpu-kit/kit.tar.xz: $((size >> 20)) MiB"
[ "$size" -le $((most_mib << 20)) ] || { echo "more than $most_mib MiB" >&2 && exit 1; }
