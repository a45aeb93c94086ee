#!/usr/bin/env bash
# rehearse.sh BUILD: a GPU's day on the emulated device, of the programs in a build tree, without network where that can be taken away.
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/kit/bin" "$work/kit/lib" "$work/kit/plugin"
ln -s "$build"/apps/choral "$build"/tests/golden/choral_golden_test "$build"/tests/plugins/choral_plugins_test "$work/kit/bin"
ln -s "$build"/plugins/cuda/emulation/choral_cuda_test "$work/kit/bin/choral_cuda_device_test"
ln -s "$build"/plugins/cuda/kernels/emulation/choral_cuda_kernels_test "$work/kit/bin/choral_cuda_kernels_device_test"
ln -s "$build"/plugins/cuda/emulation/libchoral_plugin_cuda_emulated.so "$work/kit/plugin"
alone=()
! unshare -n true 2>/dev/null || alone=(unshare -n)
OUT=$work/out KIT=$work/kit DEVICE=cuda_emulated ONLY='MatmulEpilogue*:DeviceTest.StatesItsPeaks:CudaTest.ARowDoes*:*EqualsTransformersAndPeft/qwen3' \
  "${alone[@]}" "$(dirname "${BASH_SOURCE[0]}")/first_day.sh" verdict answers | tee "$work/said"
if grep 'FAILED\|STATUS' "$work/said" | grep -v nvidia-smi; then exit 1; fi
passed=$(grep -c '1 suites passed, 0 failed' "$work/said")
[ "$passed" = 5 ] || { echo "$passed of 5 programs ran their suite" >&2 && exit 1; }
