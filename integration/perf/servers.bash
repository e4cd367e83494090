# The servers that are measured. Source it.
#
# server_start NAME     starts acetate, postgres, ganesha or nfsserve at HOST, and waits until it listens
# server_stop NAME      ends it, and notes the most memory that it has had, and its processor time
# server_cpu_us         processor time of all its threads so far, in microseconds
#
# They read HOST, BASE (what acetate and nfsserve serve), SESSION, SESSION_URL (of postgres: acetate
# with a session in a database), COPY (what ganesha serves and writes to) and PART, and set SERVER_PID, nfs, mount (addresses) and export.

HOST=127.0.0.1
SERVER_PID='' nfs='' mount='' export=''

# server_command NAME: sets command, nfs, mount and export.
server_command() {
    nfs=$HOST:2049 mount=$nfs export=/
    case $1 in
        acetate)
            command=("$ACETATE" serve "$SESSION" ${BASE:+--base "$BASE"} --listen "$nfs" --insecure)
            # Beyond loopback, the guest's root is root only where that is said.
            [[ $HOST = 127.* ]] || command+=(--no-root-squash)
            ;;
        postgres)
            command=("$ACETATE" serve "$SESSION_URL" --base "$BASE" --local "$RUN/local"
                --listen "$nfs" --insecure)
            ;;
        nfsserve)
            command=("$PERF_CLIENT" serve-stock "$SESSION" "$BASE" "$nfs")
            ;;
        ganesha)
            mount=$HOST:20048 export=$COPY
            command=(ganesha.nfsd -F -f "$RUN/ganesha.conf" -L "$RUN/logs/ganesha"
                -p "$RUN/ganesha.pid" -N NIV_WARN)
            cat >"$RUN/ganesha.conf" <<CONF
NFS_CORE_PARAM {
    NFS_Port = 2049; MNT_Port = 20048; Protocols = 3;
    Enable_NLM = false; Enable_RQUOTA = false;
}
EXPORT {
    Export_Id = 1; Path = "$COPY"; Pseudo = /exp; Access_Type = RW; Squash = No_root_squash;
    Protocols = 3; SecType = sys; Transports = TCP;
    FSAL { Name = VFS; }
}
CONF
            ;;
    esac
}

server_start() {
    server_command "$1"
    "${command[@]}" </dev/null >>"$RUN/logs/$1" 2>&1 8>&- &
    SERVER_PID=$!
    local address port deadline=$(($(now_ms) + 20000))
    for address in "$nfs" "$mount"; do
        port=${address#*:}
        until (exec 3<>"/dev/tcp/$HOST/$port") 2>/dev/null; do
            kill -0 "$SERVER_PID" 2>/dev/null && (($(now_ms) < deadline)) ||
                die "$1 does not listen on port $port" "its log is $RUN/logs/$1"
            sleep 0.02
        done
    done
}

# Ours has to end well; the others are only asked to be gone: ganesha takes seconds for it.
server_stop() {
    local signal=KILL status=0 peak
    [ "$1" != acetate ] && [ "$1" != postgres ] || signal=TERM
    peak=$(awk '/^VmHWM/ { print $2 }' "/proc/$SERVER_PID/status")
    printf '{"part":"%s","server":"%s","peak_kib":%d}\n' "$PART" "$1" "$peak" >>"$RESULTS"
    kill "-$signal" "$SERVER_PID"
    wait "$SERVER_PID" 2>/dev/null || status=$?
    [ "$signal" = KILL ] || ((status == 0)) || die "$1 ended with $status" "its log: $RUN/logs/$1"
}

# From the process and not its threads, of which some have ended.
server_cpu_us() {
    local stat
    stat=$(<"/proc/$SERVER_PID/stat")
    # shellcheck disable=SC2086  # words: what follows the name in parentheses, from field 3 on
    set -- ${stat##*) }
    echo $(((${12} + ${13}) * 1000000 / $(getconf CLK_TCK)))
}
