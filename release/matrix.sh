#!/usr/bin/env bash
# Tries the wheels of dist/: on this machine's python3, and on the Pythons of other Debians,
# each in a system of its own. `make dist` comes first.
#
#     release/matrix.sh [FOLDER]
#
# FOLDER keeps the systems and the logs of the tests; by default build/matrix. It runs as
# root on Debian, and prints a table. Needs debootstrap; for aarch64 also qemu-user-static,
# registered in /proc/sys/fs/binfmt_misc.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/matrix}
mkdir -p "$folder"
mirror=$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" | sed -n 1p)
failed=0

# here WHEEL [OPTION]: on this machine.
here() {
  python3 release/try_wheel.py dist/*-"$1".whl --sdist dist/*.tar.gz \
    --log "$folder/here-$1${2:-}.log" ${2:+"$2"} || failed=1
}

# there SYSTEM ARCHITECTURE PYTHON WHEEL [OPTION...]: in a system that is made at first.
there() {
  local root=$folder/$1-$2 python=$3 wheel=$4 script=/usr/share/debootstrap/scripts/$1 one
  if [ ! -d "$root" ]; then
    [ -e "$script" ] || script=${script%/*}/sid  # a release newer than debootstrap
    debootstrap --variant=minbase --arch="$2" --include=ca-certificates "$1" "$root" \
      "$mirror" "$script" > "$root.log"
  fi
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  if [ ! -x "$root/usr/bin/$python" ]; then
    chroot "$root" apt-get install -qq "$python" "$python-venv" >> "$root.log" 2>&1
  fi
  rm -rf "$root/opt/try" && mkdir "$root/opt/try"
  cp -r release dist constraints.txt "$root/opt/try/"
  for one in proc dev sys; do mount --bind "/$one" "$root/$one"; done
  env -u PIP_FIND_LINKS chroot "$root" "/usr/bin/$python" /opt/try/release/try_wheel.py \
    "/opt/try/$(echo dist/*-"$wheel".whl)" --sdist "/opt/try/$(echo dist/*.tar.gz)" \
    --cores "$(nproc)" --log "/opt/try/$python-$wheel.log" "${@:5}" || failed=1
  for one in proc dev sys; do umount "$root/$one"; done
  cp "$root/opt/try/"*.log "$folder/" || failed=1
}

echo "| wheel | Python | with | kernel | install to table | installed | tests |"
echo "|---|---|---|---|---|---|---|"
here manylinux_2_17_x86_64 --full
here manylinux_2_17_x86_64 --lowest
here any
there trixie amd64 python3.13 manylinux_2_17_x86_64
there forky amd64 python3.14 manylinux_2_17_x86_64
there forky amd64 python3.14 any
there bookworm arm64 python3.11 manylinux_2_17_aarch64 --only tests/kernels
exit $failed
