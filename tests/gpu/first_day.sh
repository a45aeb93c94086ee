#!/usr/bin/env bash
# A GPU machine's day, of the kit that ./dev gpu-kit made: tests/gpu/first_day.sh PART…, in the tree's root, without network or compiler.
#   verdict   the device, its operators against the host's, whether wgmma gives mma.sync's bits, the kernels' and the plug-in's tests
#   answers   goldens of every family and kind of adapter, the engine's tests on the plug-in, rows alone and together
#   sanitize  the kernels' tests under compute-sanitizer
#   bench     8B: bf16, x in 16 bits, W8A8, Q4_K; adapters; without graphs
#   peers     torch's products and attention at the same shapes
#   counters  six kernels as ncu sees them
#   host      the CPU's own figures by threads
# DEVICE, KIT (where it was unpacked), SCALE (of the synthetic model), BATCHES, PROMPTS, CASES and ONLY (a filter of tests) choose otherwise.
# Each step has its limit, and none stops the next. Logs and summary.txt go to $OUT (gpu-day), at most 8 files; the summary is printed last.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
out=${OUT:-$PWD/gpu-day}
mkdir -p "$out"
kit=${KIT:-/tmp/choral-gpu-kit}
if [ ! -d "$kit" ]; then
  mkdir -p "$kit" && tar -xJf gpu-kit/kit.tar.xz -C "$kit" || exit 1
fi
export LD_LIBRARY_PATH=$kit/lib CHORAL_PLUGIN_PATH=$kit/plugin CHORAL_TEST_DATA=$PWD/tests/data
export CHORAL_TEST_DEVICE=${DEVICE:-cuda} CHORAL_TEST_PLUGINS=$kit/plugin CHORAL_TEST_CUDA_DEVICE=${DEVICE:-cuda} CHORAL_TEST_CUDA=$kit/plugin
readonly device=${DEVICE:-cuda} scale=${SCALE:-8b}

note() { printf '%s\n' "$*" >>"$out/summary.txt"; }

# step NAME LIMIT COMMAND…: its output goes to the part's log.
step() {
  local name=$1 limit=$2 begin=$SECONDS status
  shift 2
  printf '\n=== %s: %s\n' "$name" "$*" >>"$log"
  timeout -k 5 "$limit" "$@" >>"$log" 2>&1 </dev/null
  status=$?
  [ $status != 124 ] || status="over its $limit s"
  note "$(printf '%-46s %4d s  %s' "$name" $((SECONDS - begin)) "$([ "$status" = 0 ] && echo ok || echo "STATUS $status")")"
}

# suites PROGRAM LIMIT JOBS FILTER: each suite in a process of its own, since an error that stays with the device ends all that follows.
suites() {
  local program=$1 limit=$2 jobs=$3 filter=${ONLY:-$4} begin=$SECONDS folder suite rc passed=0 failed=0
  folder=$(mktemp -d)
  # A line for each suite: its name, and its tests as a filter.
  "$kit/bin/$program" --gtest_list_tests --gtest_filter="$filter" 2>>"$log" |
    awk '/^[^ ].*\./ {suite = $1; next} /^  / {tests[suite] = tests[suite] ":" suite $1} END {for (s in tests) print s, substr(tests[s], 2)}' |
    sort >"$folder/list"
  export program limit kit folder
  # shellcheck disable=SC2016
  xargs -P "$jobs" -L 1 bash -c '
    timeout -k 5 "$limit" "$kit/bin/$program" --gtest_filter="$1" --gtest_brief=1 >"$folder/${0//\//_}log" 2>&1 </dev/null
    echo $? >"$folder/${0//\//_}rc"' <"$folder/list" 2>>"$log"
  while read -r suite _; do
    rc=$(cat "$folder/${suite//\//_}rc" 2>/dev/null || echo none)
    printf '\n=== %s %s %s\n' "$program" "$suite" "$rc" >>"$log"
    tail -c 20000 "$folder/${suite//\//_}log" >>"$log"
    if [ "$rc" = 0 ]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      note "    FAILED ($rc) $suite $(grep -c '^\[  FAILED  \].*ms)' "$folder/${suite//\//_}log") tests; $(grep -m 1 -A 4 'Failure$' \
        "$folder/${suite//\//_}log" | tr '\n' ' ' | cut -c1-300)"
    fi
  done <"$folder/list"
  note "$(printf '%-46s %4d s  %s' "$program" $((SECONDS - begin)) "$passed suites passed, $failed failed")"
}

verdict() {
  step "nvidia-smi" 20 nvidia-smi
  step "doctor --ops" 60 "$kit/bin/choral" doctor --ops
  suites choral_cuda_kernels_device_test 60 4 "MatmulWarpgroups*"
  suites choral_cuda_kernels_device_test 90 4 "*-MatmulWarpgroups*"
  suites choral_cuda_device_test 60 2 "*"
}

answers() {
  suites choral_plugins_test 120 4 "Cuda*:*/Cuda*:Devices/SamplingTest.*:BenchTest.Cuda*:WaitTest.*Cuda*-*ref_device*"
  suites choral_golden_test 200 8 "*TinyGolden*:*Kinds*:*Gguf*:*RanksTest.GiveTheBitsOfOne/*"
}

sanitize() {
  local tool
  for tool in memcheck racecheck synccheck; do
    step "$tool: kernels" 75 compute-sanitizer --tool $tool --error-exitcode 9 "$kit/bin/choral_cuda_kernels_device_test" \
      --gtest_filter="*bf16*:*q4_k*:*int8*:Attention*:Lora*:Sampling*-*RowsDoNotKnow*" --gtest_brief=1
  done
}

timed() {
  local name=$1
  shift
  step "$name" 100 "$kit/bin/choral" bench --synthetic "llama-$scale" --device "$device" "$@"
}

bench() {
  local batches=${BATCHES:-1,8,64,128} prompts=${PROMPTS:-512,2048} work
  local -a common=(--batch "$batches" --prefill "$prompts" --ops)
  for work in ${CASES:-bf16 16bit w8a8 q4_k adapters no-graphs}; do
    case $work in
      bf16) timed "bf16" "${common[@]}" ;;
      16bit) timed "bf16, x in 16 bits" --activations 16bit "${common[@]}" ;;
      w8a8) timed "w8a8_dynamic" --quantization w8a8_dynamic "${common[@]}" ;;
      q4_k) timed "q4_k" --format q4_k "${common[@]}" ;;
      adapters) timed "bf16, 32 adapters of r = 16" --adapters 32 --ranks 16 --batch 32 --prefill "${prompts##*,}" --ops ;;
      no-graphs) CHORAL_CUDA_GRAPHS=0 timed "bf16 without graphs" --batch 1,64 --prefill "${prompts%%,*}" ;;
    esac
  done
}

peers() { step "torch" 90 python3 tests/gpu/peers.py; }

counters() {
  local kernel
  for kernel in narrow_kernel stream_kernel warpgroup_kernel attention_warpgroup_kernel prepare_planes_kernel lora_shrink; do
    step "ncu $kernel" 60 ncu --clock-control none --kernel-name-base demangled -k "regex:$kernel" -s 20 -c 2 --section SpeedOfLight --section Occupancy \
      --section LaunchStats --section MemoryWorkloadAnalysis "$kit/bin/choral" bench --synthetic llama-1b --device "$device" --batch 1,32 \
      --prefill 1024 --steps 3 --adapters 32 --ranks 16
  done
}

host() {
  local threads format
  for format in bf16 q4_k; do
    for threads in 1 2 4 8 16; do
      step "CPU, $format, $threads threads" 60 "$kit/bin/choral" bench --synthetic llama-1b --device cpu --format $format --threads $threads \
        --batch 1,16 --prefill 256 --steps 5
    done
  done
}

note "$(date -u +%FT%TZ) $(uname -sr), $(nproc) cores; parts: $*"
for part; do
  log=$out/$part.log
  note "--- $part"
  "$part"
done
for part; do
  case $part in bench | peers | host) grep -vE '^$|note: |^===' "$out/$part.log" | head -c 5000 | cut -c1-150 ;; esac
done
cat "$out/summary.txt"
