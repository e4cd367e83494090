# What a case may use inside the guest. Source it; lib/guest-case does.
#
# host NAME [ARG...]   asks the host to run a function of lib/server.bash (stop, start, kill9,
#                      restart) or `host_NAME` of the case, waits for it, and has its exit status
# mount_at DIR [OPT]   mounts the export at DIR with the suite's options, OPT, and those of
#                      `kernel/run --mount-options`
# same WANT GOT WHAT   fails the case when the two differ
# refused ERRNO CMD... the command must fail with that message, for example "File exists"
# py [ARG...]          python3 with the suite's helpers in its path

export HOME=/mnt/tmp/home TMPDIR=/mnt/tmp LC_ALL=C.UTF-8
export PYTHONPATH=/mnt/repo/integration/lib PYTHONDONTWRITEBYTECODE=1
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=4
export GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=Test
export GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=test@example.org
export GIT_CONFIG_KEY_2=init.defaultBranch GIT_CONFIG_VALUE_2=main
export GIT_CONFIG_KEY_3=safe.directory GIT_CONFIG_VALUE_3='*'
mkdir -p "$HOME"

EXCHANGE=/mnt/host/exchange

host() {
    rm -f "$EXCHANGE/answer"
    printf '%q ' "$@" >"$EXCHANGE/request.new"
    mv "$EXCHANGE/request.new" "$EXCHANGE/request"
    local tries=0
    until [ -e "$EXCHANGE/answer" ]; do
        ((++tries < 6000)) || { echo "host: no answer to: $*"; return 1; }
        read -r -t 0.03 -u 9 || true
    done
    return "$(<"$EXCHANGE/answer")"
}

# Over one TCP connection, without the portmapper and without lockd. `hard` is what users have;
# the short timeouts only make the client notice a restarted server sooner.
MOUNT_OPTIONS=vers=3,tcp,nolock,port=$PORT,mountport=$MOUNT_PORT,mountproto=tcp
MOUNT_OPTIONS+=,hard,timeo=20,retrans=3

mount_at() {
    mkdir -p "$1"
    timeout 60 mount -t nfs -o "$MOUNT_OPTIONS${2:+,$2}${SUITE_OPTIONS:+,$SUITE_OPTIONS}" "$SERVER_ADDRESS:$EXPORT" "$1"
}

# Forgets what the client has cached and not what it has yet to write.
drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

fail() { echo "failed: $*"; return 1; }

same() {
    [ "$1" = "$2" ] || { printf 'failed: %s\n  want: %s\n  got:  %s\n' "$3" "$1" "$2"; return 1; }
}

refused() {
    local message=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "failed: should have been refused ($message): $*"
        return 1
    fi
    case $output in
        *"$message"*) ;;
        *) printf 'failed: want "%s" from: %s\n  got: %s\n' "$message" "$*" "$output"; return 1 ;;
    esac
}

py() { timeout "$TIMEOUT" python3 "$@"; }
