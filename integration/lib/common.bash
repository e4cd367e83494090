# Paths and messages that every script of the suite shares. Source it; it runs nothing.
#
# REPO        the repository
# TARGET      cargo's target directory
# TOOLS       where `lib/install` puts tools from the crates registry
# ACETATE     the server under test
# RUN         everything that a run of the kernel suite leaves behind, for looking at afterwards

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
TOOLS=$TARGET/tools
ACETATE=${ACETATE:-$TARGET/release/acetate}
RUN=${RUN:-$TARGET/kernel-suite}
LIB=$REPO/integration/lib
KERNEL=$REPO/integration/kernel

# Debian keeps some of what the suite runs where an ordinary user's path does not lead.
PATH=$PATH:/usr/sbin:/sbin

# The pair's own network: the server listens on the first address, the kernel mounts from the
# second. Both are from TEST-NET-1 (RFC 5737), so they collide with nothing.
SERVER_ADDRESS=192.0.2.1
GUEST_ADDRESS=192.0.2.2
PORT=2049
MOUNT_PORT=$PORT

# die MESSAGE...: ends the script with an error that says what to do.
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf 'hint: %s\n' "$line" >&2; done
    exit 1
}

note() { printf '%s\n' "$*" >&2; }

# seconds_since START: whole and tenths, START being a value of now_ms.
now_ms() { local t=${EPOCHREALTIME/./}; echo "${t%???}"; }
seconds_since() {
    local ms=$(($(now_ms) - $1))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}
