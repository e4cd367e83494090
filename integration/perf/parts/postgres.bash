# The operations of the protocol on a session in a database, beside one in a file and ganesha, over
# 1 and 8 connections. The database is on the same machine and syncs its commits.

POSTGRES_OPERATIONS=(getattr lookup readdirplus read-large-base create-write-commit setattr rename
    mkdir remove-delta write-large read-large-delta)

part_postgres() {
    local order=(acetate postgres ganesha) server connections round url
    BASE=$RUN/base COPY=$RUN/copy SESSION=$RUN/session.db
    rm -rf "$BASE" "$COPY" "$SESSION"*
    "$PERF_CLIENT" make-tree "$BASE"
    cp -a "$BASE" "$COPY"
    url=$(DURABLE=1 "$LIB/postgres" start "$RUN/postgres" 8>&-) ||
        die "no database" "see $RUN/postgres"
    for ((round = 1; round <= rounds; round++)); do
        for connections in 1 8; do
            for server in "${order[@]}"; do
                note "postgres: round $round of $rounds, connections: $connections, server: $server"
                SESSION_URL=$url/round-$round-$connections
                postgres_measure
            done
        done
        order=("${order[2]}" "${order[1]}" "${order[0]}")
    done
    "$LIB/postgres" stop "$RUN/postgres"
    rm -rf "$BASE" "$COPY" "$SESSION"* "$RUN/local"
}

postgres_measure() {
    rm -rf "$SESSION"* "$COPY"/{small,lane-*,written*} "$RUN/local"
    cp -a "$BASE/small" "$COPY/"
    cat "$BASE/large.bin" "$COPY/large.bin" >/dev/null
    sync -f "$RUN"
    server_start "$server"
    SERVER_PID=$SERVER_PID "$PERF_CLIENT" run "$server" "$nfs" "$mount" "$export" \
        "$connections" "$round" "$milliseconds" "${POSTGRES_OPERATIONS[@]}" |
        sed 's/^{/{"part":"postgres",/; s/,"part":"protocol"//' >>"$RESULTS" ||
        die "the run against $server with $connections connections failed" \
            "the server's log is $RUN/logs/$server"
    server_stop "$server"
}
