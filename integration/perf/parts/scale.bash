# What operations cost in a session of a million files and in one of a thousand, and how soon a
# server over the larger one answers.

SCALE_FILES=(1000 1000000)
# Changes that a killed server leaves in its log: some 20 MiB.
SCALE_DIRTY_FILES=500

part_scale() {
    local files round
    BASE='' COPY=''
    for files in "${SCALE_FILES[@]}"; do
        rm -f "$RUN/session-$files.db"*
        note "scale: making a session of $files files"
        "$PERF_CLIENT" make-session "$RUN/session-$files.db" "$files"
        # In memory, as what is in use is.
        cat "$RUN/session-$files.db" >/dev/null
    done
    sync -f "$RUN"
    for ((round = 1; round <= scale_rounds; round++)); do
        for files in "${SCALE_FILES[@]}"; do
            note "scale: round $round of $scale_rounds, files: $files"
            SESSION=$RUN/session-$files.db
            server_start acetate
            SERVER_PID=$SERVER_PID "$PERF_CLIENT" scale acetate "$nfs" "$mount" "$export" \
                "$files" "$round" "$milliseconds" >>"$RESULTS" || die "the scale part failed"
            server_stop acetate
        done
    done
    scale_start_up
    rm -f "$RUN"/session-*.db*
}

# After a clean end, and after a kill that left a log to recover.
scale_start_up() {
    SESSION=$RUN/session-${SCALE_FILES[1]}.db
    for ((round = 1; round <= rounds; round++)); do
        # A clean end, whatever was before.
        server_start acetate
        server_stop acetate
        start_up 'start'
        server_start acetate
        "$PERF_CLIENT" dirty acetate "$nfs" "$mount" "$export" "$round" "$SCALE_DIRTY_FILES"
        kill -KILL "$SERVER_PID"
        wait "$SERVER_PID" 2>/dev/null || true
        start_up 'start after kill -9'
    done
}

start_up() {
    "$PERF_CLIENT" start-up acetate "$nfs" "$mount" "$export" "$1" "${command[@]}" >>"$RESULTS" ||
        die "the server does not start"
}
