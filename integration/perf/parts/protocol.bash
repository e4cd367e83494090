# The operations of the protocol one by one: acetate, ganesha and the same overlay behind stock
# nfsserve, loaded by our client over 1 and then 8 connections.

part_protocol() {
    local order=(acetate ganesha nfsserve) server connections round kib
    BASE=$RUN/base COPY=$RUN/copy SESSION=$RUN/session.db
    kib=$(df --output=avail -k "$RUN" | tail -n 1)
    ((kib > 3 << 20)) || die "$RUN has less than 3 GiB of free space"
    rm -rf "$BASE" "$COPY" "$SESSION"*
    "$PERF_CLIENT" make-tree "$BASE"
    cp -a "$BASE" "$COPY"
    for ((round = 1; round <= rounds; round++)); do
        for connections in 1 8; do
            for server in "${order[@]}"; do
                note "protocol: round $round of $rounds, connections: $connections, server: $server"
                protocol_measure
            done
        done
        # Each round goes the other way round, so that no server always comes first.
        order=("${order[2]}" "${order[1]}" "${order[0]}")
    done
    rm -rf "$BASE" "$COPY" "$SESSION"*
}

# Gives every run the same start: a new session, a fresh copy of what runs change, nothing that
# waits to be written, and the large files in memory.
protocol_reset() {
    rm -rf "$SESSION"* "$COPY"/{small,lane-*,written*}
    cp -a "$BASE/small" "$COPY/"
    cat "$BASE/large.bin" "$COPY/large.bin" >/dev/null
    sync -f "$RUN"
}

protocol_measure() {
    protocol_reset
    server_start "$server"
    SERVER_PID=$SERVER_PID "$PERF_CLIENT" run "$server" "$nfs" "$mount" "$export" \
        "$connections" "$round" "$milliseconds" >>"$RESULTS" ||
        die "the run against $server with $connections connections failed" \
            "the server's log is $RUN/logs/$server"
    server_stop "$server"
}
