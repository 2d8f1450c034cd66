#!/usr/bin/env bash
# Installs the real engine and the real router that `make lab` drives, once, into a cache folder outside the repository.
# Every step that succeeded is stamped with its inputs, so that an interrupted installation goes on where it stopped.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
lab="${TUNELOOP_LAB:-$HOME/.cache/tuneloop-lab}"
python="${PYTHON:-python3.11}"
mkdir -p "$lab"

# system libraries that the KV transfer loads, and a real sshd
packages=()
for package in libibverbs1 librdmacm1 libnuma1 liburing2 openssh-server; do
  dpkg -s "$package" >/dev/null 2>&1 || packages+=("$package")
done
if [ ${#packages[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "please install: ${packages[*]}" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

venv() {  # NAME REQUIREMENTS PIP-OPTIONS…
  local name="$1" file="$here/$2" stamp wanted
  shift 2
  stamp="$lab/$name.stamp"
  wanted="$(sha256sum "$file" | cut -d' ' -f1)"
  [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ] && { echo "$name: installed"; return; }
  echo "$name: installing into $lab/$name"
  [ -x "$lab/$name/bin/python" ] || "$python" -m venv "$lab/$name"
  "$lab/$name/bin/pip" install -qq --disable-pip-version-check "$@" -r "$file"
  echo "$wanted" > "$stamp"
}
venv engine requirements-engine.txt --no-deps
venv router requirements-router.txt
du -sh "$lab"/engine "$lab"/router
