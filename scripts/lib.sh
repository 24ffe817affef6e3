# What the scripts beside this file share: words, packages, builds.  To be sourced by bash, from anywhere; leaves the
# caller in the repository's top folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; return; fi
    command -v sudo >/dev/null || die "not root and no sudo: run this as root, or install by hand: $*"
    sudo "$@"
}

# The packages of the named sets (packages.txt), without the ones that are here.
missing_packages() {
    local set package sets=" $* "
    while read -r set package _; do
        [[ $sets == *" $set "* ]] || continue
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done < <(grep -v '^#' scripts/packages.txt) | sort -u
}

# Installs what is missing of the named sets; asks nothing, starts no service (Postfix and Prometheus would be started
# otherwise; we only want their programs).
install_packages() {
    local missing policy=/usr/sbin/policy-rc.d status=0
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "this is not Debian; please install: ${missing[*]}"
    say "installing with apt-get: ${missing[*]}"
    as_root apt-get update -qq
    if [ -e $policy ]; then policy=; else printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy; fi
    echo 'postfix postfix/main_mailer_type select No configuration' | as_root debconf-set-selections
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null || status=$?
    [ -z "$policy" ] || as_root rm -f "$policy"
    [ $status = 0 ] || die "apt-get could not install what is missing (its words are above)"
}

# build PRESET [configure option...] [-- target...]: says one line, shows the compiler's words only when it fails.
build() {
    local preset=$1 options=() log; shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    [ $# -eq 0 ] || shift
    local targets=(); [ $# -eq 0 ] || targets=(--target "$@")
    mkdir -p "build/$preset"
    log=build/$preset/build.log
    say "building build/$preset (log: $log)"
    if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then cat "$log" >&2; die "cmake could not configure"; fi
    if [ -t 2 ]; then   # one moving line: ninja's "[12/80] Building ..."
        cmake --build --preset "$preset" "${targets[@]}" 2>&1 | tee -a "$log" |
            while IFS= read -r line; do [[ $line != \[* ]] || printf '\r\033[K%.100s' "$line" >&2; done ||
            { printf '\n' >&2; grep -v '^\[' "$log" | tail -n 60 >&2; die "the build failed"; }
        printf '\r\033[K' >&2
    else
        cmake --build --preset "$preset" "${targets[@]}" >>"$log" 2>&1 ||
            { grep -v '^\[' "$log" | tail -n 60 >&2; die "the build failed"; }
    fi
}
