# Real work through a kernel client: User Mode Linux mounts acetate and ganesha in turn, and
# git, cargo, npm and the like work in it. Times are the guest's; see docs/PERFORMANCE.md.
#
# WORKLOADS='untar rm'   only these
# PERF_RECORD=1          `perf record` of the server, in $RUN/logs/perf-WORKLOAD-SERVER

WORKLOADS=${WORKLOADS:-untar git cp find grep rm cargo npm}
WORK_SECONDS=600

part_work() {
    local WORK=$RUN/work order=(acetate ganesha) server round
    HOST=$SERVER_ADDRESS BASE=$WORK/base SESSION=$RUN/session.db COPY=$WORK/copy
    rm -rf "$WORK"
    mkdir -p "$WORK"
    . "$PERF/work/inputs.bash"
    work_inputs "$WORK"
    cp -a "$BASE" "$COPY"
    tar -C "$WORK" -cf - base copy | cat >/dev/null
    work_network
    guest_boot
    work_in_guest warm_up /dev/null
    for ((round = 1; round <= work_rounds; round++)); do
        for server in "${order[@]}"; do
            note "work: round $round of $work_rounds, server: $server"
            work_reset
            server_start "$server"
            work_in_guest guest "$RUN/logs/work-$server"
            server_stop "$server"
        done
        order=("${order[1]}" "${order[0]}")
    done
    guest_kill
    HOST=127.0.0.1
    rm -rf "$WORK" "$SESSION"*
}

work_network() {
    ip tuntap add tap0 mode tap
    ip address add "$SERVER_ADDRESS/24" dev tap0
    ip link set tap0 up
}

# A new session, and a copy as it was.
work_reset() {
    rm -rf "$SESSION"* "$COPY"/{untar,clone,copy,project,crate/target,crate/Cargo.lock}
    [ -d "$COPY/tree/removed" ] || cp -a "$BASE/tree/removed" "$COPY/tree/"
    sync -f "$RUN"
}

# work_in_guest FUNCTION LOG
work_in_guest() {
    local port=${mount##*:}
    guest_run "$WORK_SECONDS" "
export SERVER_ADDRESS=$HOST PORT=2049 MOUNT_PORT=$port EXPORT=$export
export TIMEOUT=$WORK_SECONDS WORKLOADS='$WORKLOADS'
exec bash /mnt/repo/integration/lib/guest-case /mnt/repo/integration/perf/work/guest.bash $1" ||
        die "the work in the guest failed" "its console is $CONSOLE, the server's log in $RUN/logs"
}

# host_begin WORKLOAD
host_begin() {
    WORK_CPU=$(server_cpu_us)
    [ -n "${PERF_RECORD:-}" ] || return 0
    perf record -q -g -p "$SERVER_PID" -o "$RUN/logs/perf-$1-$server" >/dev/null 2>&1 &
    RECORDER_PID=$!
}

# host_end WORKLOAD MICROSECONDS: the calls come from the guest's mountstats.
host_end() {
    local cpu=$(($(server_cpu_us) - WORK_CPU))
    [ -z "${PERF_RECORD:-}" ] || { kill -INT "$RECORDER_PID" && wait "$RECORDER_PID" || true; }
    python3 "$PERF/work/calls.py" "$WORK/before" "$WORK/after" >"$WORK/calls"
    printf '{"part":"work","what":"%s","server":"%s","round":%d,"value":%d.%06d,"server_us":%d,' \
        "$1" "$server" "$round" $(($2 / 1000000)) $(($2 % 1000000)) "$cpu" >>"$RESULTS"
    printf '"calls":%s}\n' "$(<"$WORK/calls")" >>"$RESULTS"
}
