#!/usr/bin/env bash
# An answer that moves, on Ray Serve: three replicas of one model, a long answer, its replica killed, the text going on in the same stream.
#   ray.sh [MODEL [ADAPTER_ROOT]]    without a model that of `./dev demo`, with the adapters of examples/adapters
# Wants choral[ray]: in the Python that CHORAL_RAY_PYTHON names (./dev test makes one; choral is then of build/dev), else in python3.
set -euo pipefail
project=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
cache=$(realpath -m "${CHORAL_CACHE:-${XDG_CACHE_HOME:-${HOME:-$PWD}/.cache}/choral}")
python=${CHORAL_RAY_PYTHON:-$cache/ray/bin/python3}
[ -x "$python" ] || python=python3
"$python" -c 'import ray' 2>/dev/null || { echo "fleet: there is no Ray for $python: pip install 'choral[ray]', or ./dev test makes it" >&2 && exit 1; }
"$python" -c 'import choral' 2>/dev/null || export PYTHONPATH=$project/build/dev/python${PYTHONPATH:+:$PYTHONPATH}
[ $# != 0 ] || set -- "$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf" "$project/examples/adapters"
[ -e "$1" ] || { echo "fleet: there is no $1: ./dev demo fetches the small model, or name another one: ray.sh MODEL" >&2 && exit 1; }
exec "$python" -W ignore "$project/examples/fleet/ray_fleet.py" "$@"
