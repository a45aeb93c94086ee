#!/usr/bin/env bash
# An answer that moves: three servers of one model behind a router, a long answer, its server killed, the text going on at another one.
#   run.sh [haproxy [MODEL]]   HAProxy by deploy/haproxy/haproxy.cfg; without a model that of `./dev demo`
#   run.sh ray …               Ray Serve: ray.sh
# Wants choral (build/release, or CHORAL), haproxy (or what ./dev test unpacked) and openssl. EDGE_PORT, EDGE_FIGURES_PORT: 8443, 8404; TOKENS of the answer: 300.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(realpath "$here/../..")
cache=$(realpath -m "${CHORAL_CACHE:-${XDG_CACHE_HOME:-${HOME:-$PWD}/.cache}/choral}")
work='' children=()

die() { printf '%s\n' "fleet: $*" >&2 && exit 1; }
tidy() {
  for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null || true; done
  [ -z "$work" ] || rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM

case ${1:-haproxy} in
  haproxy) shift $(($# > 0)) ;;
  ray) shift && exec "$here/ray.sh" "$@" ;;
  *) die "there are 'haproxy' and 'ray', and no '$1'" ;;
esac
model=${1:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}
[ -e "$model" ] || die "there is no $model: ./dev demo fetches the small model, or name another one: run.sh haproxy MODEL"
choral=${CHORAL:-$project/build/release/apps/choral}
[ -x "$choral" ] || choral=$(command -v choral) || die "there is no choral: ./dev build makes it, or CHORAL names it"
haproxy=$(PATH=$PATH:/usr/sbin command -v haproxy) || haproxy=${CHORAL_PROXIES:-$cache/proxies}/usr/sbin/haproxy
[ -x "$haproxy" ] || die "there is no haproxy: apt-get install haproxy"

work=$(mktemp -d)
openssl req -x509 -days 2 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost 2>"$work/openssl.log" || die "no certificate could be made: $(<"$work/openssl.log")"
cat "$work/cert.pem" "$work/key.pem" >"$work/edge.pem"

pids=()
for i in 1 2 3; do
  "$choral" serve "$model" --port 0 --trusted-proxies 127.0.0.1 2>"$work/replica$i.log" &
  children+=($!) pids+=("replica$i=$!")
done
disown -a  # nobody needs to hear that they were killed
for i in 1 2 3; do
  until port=$(grep -oPm1 'serving on http://[^ ]*:\K[0-9]+' "$work/replica$i.log"); do
    kill -0 "${children[i - 1]}" 2>/dev/null || die "replica$i ended: $(<"$work/replica$i.log")"
    sleep 0.1
  done
  export "REPLICA_$i=127.0.0.1:$port"
done
EDGE_BIND=127.0.0.1:${EDGE_PORT:-8443} EDGE_FIGURES=127.0.0.1:${EDGE_FIGURES_PORT:-8404} EDGE_CERTIFICATE=$work/edge.pem \
  "$haproxy" -db -f "$project/deploy/haproxy/haproxy.cfg" >"$work/haproxy.log" 2>&1 &
children+=($!)
disown -a
until (exec 3<>"/dev/tcp/127.0.0.1/${EDGE_PORT:-8443}") 2>/dev/null; do
  kill -0 "${children[3]}" 2>/dev/null || die "HAProxy ended: $(<"$work/haproxy.log")"
  sleep 0.1
done
python3 "$here/go_on.py" "https://localhost:${EDGE_PORT:-8443}" --ca "$work/cert.pem" --max-tokens "${TOKENS:-300}" "${pids[@]}" ||
  die "that went wrong; HAProxy said: $(tail -n 20 "$work/haproxy.log")"
