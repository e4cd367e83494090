# The server under test, on the host side of the network. Source it.
#
# server_start, server_stop (SIGTERM, must exit 0), server_kill9, server_restart (kill -9, start)
#
# They read BASE (empty for none), SESSION, SERVER_LOG, and from the case server_options (array),
# server_config (an exports file, served in place of BASE and SESSION) and server_descriptors (a
# limit on open files). SERVER=ganesha serves BASE itself with
# nfs-ganesha instead: a yardstick for speed and a check of the suite; what is about sessions
# is skipped by name then.

SERVER=${SERVER:-acetate}
RSS_LIMIT_KIB=$((200 * 1024))
SERVER_PID=

# server_as_export: makes an exports file with one export at /, which is the session over the base
# as it is served without one.
server_as_export() {
    local access=rw option rest=()
    for option in "${server_options[@]}"; do
        case $option in
            --read-only) access=ro ;;
            *) rest+=("$option") ;;
        esac
    done
    server_options=("${rest[@]}") server_config=$CASE_DIR/suite-exports.toml
    cat >"$server_config" <<TOML
[[export]]
name = "suite"
path = "/"
clients = ["$GUEST_ADDRESS"]
options = ["$access", "no_root_squash", "sec=sys:none"]
[[export.mount]]
at = "/"
session = "$SESSION"
TOML
    [ -z "$BASE" ] || echo "base = \"$BASE\"" >>"$server_config"
}

server_start() {
    case $SERVER in
        acetate) server_command=("$ACETATE" serve)
            case $server_config in
                # The guest's root is root, as at an address of this machine alone.
                '') server_command+=("$SESSION" ${BASE:+--base "$BASE"} --no-root-squash) ;;
                *) server_command+=(--config "$server_config") ;;
            esac
            server_command+=(--listen "$SERVER_ADDRESS:$PORT" "${server_options[@]}") ;;
        ganesha) ganesha_prepare ;;
        *) die "SERVER=$SERVER is not known" "one of: acetate, ganesha" ;;
    esac
    (
        [ -z "$server_descriptors" ] || ulimit -n "$server_descriptors"
        exec "${server_command[@]}"
    ) </dev/null >>"$SERVER_LOG" 2>&1 &
    SERVER_PID=$!
    echo "$SERVER_PID" >"$RUN/server.pid"
    local deadline=$(($(now_ms) + 10000))
    until (exec 3<>"/dev/tcp/$SERVER_ADDRESS/$PORT") 2>/dev/null; do
        if ! kill -0 "$SERVER_PID" 2>/dev/null || (($(now_ms) > deadline)); then
            note "failed: the server does not listen; its log ends:"
            tail -n 20 "$SERVER_LOG" >&2
            return 1
        fi
        sleep 0.02
    done
}

# server_peak: the most memory that the process has had resident, in KiB.
server_peak() { awk '/^VmHWM/ { print $2 }' "/proc/$SERVER_PID/status" 2>/dev/null || true; }

# server_check_memory: notes the peak of this process; fails above the limit.
server_check_memory() {
    local peak
    peak=$(server_peak)
    if ((${peak:-0} > ${SERVER_PEAK_KIB:-0})); then SERVER_PEAK_KIB=$peak; fi
    [ "$SERVER" = acetate ] || return 0
    if [ -z "$peak" ]; then
        note "failed: the server has died; its log ends:"
        tail -n 20 "$SERVER_LOG" >&2
        return 1
    fi
    if ((peak > RSS_LIMIT_KIB)); then
        note "failed: the server had $peak KiB resident, limit $RSS_LIMIT_KIB"
        return 1
    fi
}

server_stop() {
    local status=0
    server_check_memory || return 1
    kill -TERM "$SERVER_PID"
    server_wait_gone 20 || { note "failed: no exit 20 s after SIGTERM"; server_kill9; return 1; }
    wait "$SERVER_PID" || status=$?
    SERVER_PID=
    if [ "$SERVER" = acetate ] && ((status != 0)); then
        note "failed: exit status $status after SIGTERM; the server's log ends:"
        tail -n 20 "$SERVER_LOG" >&2
        return 1
    fi
}

server_kill9() {
    server_check_memory || return 1
    kill -KILL "$SERVER_PID"
    wait "$SERVER_PID" 2>/dev/null || true
    SERVER_PID=
}

server_restart() { server_kill9 && server_start; }

# A process that has ended and is not waited for yet is a zombie: state Z.
server_wait_gone() {
    local deadline=$(($(now_ms) + $1 * 1000)) state
    while state=$(awk '/^State/ { print $2 }' "/proc/$SERVER_PID/status" 2>/dev/null) &&
        [ "$state" != Z ]; do
        (($(now_ms) < deadline)) || return 1
        sleep 0.02
    done
}

# nfs-ganesha needs an rpcbind and a configuration file.
ganesha_prepare() {
    ps -C rpcbind >/dev/null || rpcbind -w || true
    EXPORT=$BASE MOUNT_PORT=20048
    cat >"$CASE_DIR/ganesha.conf" <<CONF
NFS_CORE_PARAM {
    NFS_Port = $PORT; MNT_Port = $MOUNT_PORT; Protocols = 3;
    Enable_NLM = false; Enable_RQUOTA = false;
}
EXPORT {
    Export_Id = 1; Path = "$BASE"; Pseudo = /exp; Access_Type = RW; Squash = No_root_squash;
    Protocols = 3; SecType = sys; Transports = TCP;
    FSAL { Name = VFS; }
}
CONF
    server_command=(ganesha.nfsd -F -f "$CASE_DIR/ganesha.conf" -L "$CASE_DIR/ganesha.log"
        -p "$CASE_DIR/ganesha.pid" -N NIV_WARN)
}
