# A write of one byte to a file of 256 MiB in the base: how soon it is answered and durable, what
# readers notice, and what the session grows by.

part_first_byte() {
    COPY='' BASE=$RUN/base SESSION=$RUN/session.db
    rm -rf "$BASE" "$SESSION"*
    "$PERF_CLIENT" make-tree "$BASE"
    for ((round = 1; round <= work_rounds; round++)); do
        note "first byte: round $round of $work_rounds"
        rm -f "$SESSION"*
        cat "$BASE/large.bin" >/dev/null
        sync -f "$RUN"
        server_start acetate
        "$PERF_CLIENT" first-byte acetate "$nfs" "$mount" "$export" "$SESSION" >>"$RESULTS" ||
            die "the first byte was not written"
        server_stop acetate
    done
    rm -rf "$BASE" "$SESSION"*
}
