# What checkpoints and restores take, how long other clients wait beside a restore, and what other
# operations take in a session with checkpoints.

CHECKPOINTS_FILES=28000
CHECKPOINTS_SMALL=1000
CHECKPOINTS_LARGE=300000
CHECKPOINTS_MANY=10000

part_checkpoints() {
    local file MEMORY=$RUN/in-memory
    COPY='' BASE=''
    rm -rf "$RUN"/session*.db*
    mkdir -p "$MEMORY"
    mount -t tmpfs none "$MEMORY"
    note "checkpoints: making sessions"
    for file in "$CHECKPOINTS_SMALL" "$CHECKPOINTS_FILES" "$CHECKPOINTS_LARGE"; do
        "$PERF_CLIENT" make-session "$RUN/session-$file.db" "$file"
    done
    "$PERF_CLIENT" make-checkpoints "$RUN/session-many.db" "$CHECKPOINTS_MANY"
    sync -f "$RUN"
    for ((round = 1; round <= work_rounds; round++)); do
        note "checkpoints: round $round of $work_rounds: making them"
        checkpoints_create
        note "checkpoints: round $round of $work_rounds: restoring"
        checkpoints_restore
        note "checkpoints: round $round of $work_rounds: comparing"
        checkpoints_diff
        note "checkpoints: round $round of $work_rounds: others, by turns"
        checkpoints_by_turns look "with 10,000 checkpoints" session-many.db
        checkpoints_by_turns tax "with a checkpoint each 20 changes" session-$CHECKPOINTS_SMALL.db
    done
    umount "$MEMORY"
    rm -rf "$RUN"/session*.db* "$RUN/base" "$MEMORY"
}

# checkpoints_copy NAME [DIR]: a copy of a session that was made becomes the one that is used.
checkpoints_copy() {
    SESSION=${2:-$RUN}/session.db
    rm -f "$SESSION"*
    cp "$RUN/$1" "$SESSION"
    cat "$SESSION" >/dev/null
    sync -f "$RUN"
}

# checkpoints_client WORK [ARGUMENT...]: has the client work with the server.
checkpoints_client() {
    SERVER_PID=$SERVER_PID "$PERF_CLIENT" "$1" acetate "$nfs" "$mount" "$export" "${@:2}" \
        >>"$RESULTS" || die "$1 failed" "the server's log is $RUN/logs/acetate"
}

# checkpoints_time WHAT COMMAND...: repeats it.
checkpoints_time() {
    "$PERF_CLIENT" time "$@" >>"$RESULTS" || die "the command failed: ${*:2}"
}

checkpoints_create() {
    local create=("$ACETATE" checkpoint create) changes
    for changes in 1 1000; do
        checkpoints_copy "session-$CHECKPOINTS_SMALL.db" "$MEMORY"
        server_start acetate
        checkpoints_client checkpoint "$SESSION" \
            "a checkpoint in memory, requested after changes: $changes" "$changes"
        server_stop acetate
        checkpoints_copy "session-$CHECKPOINTS_SMALL.db"
        server_start acetate
        checkpoints_client checkpoint "$SESSION" \
            "a checkpoint, requested after changes: $changes" "$changes"
        server_stop acetate
    done
    server_start acetate
    checkpoints_time '`acetate checkpoint create`, served' "${create[@]}" "$SESSION"
    server_stop acetate
    checkpoints_time '`acetate checkpoint create`, at rest' "${create[@]}" "$SESSION"
    checkpoints_copy session-many.db
    checkpoints_time '`acetate checkpoint ls` of 10,000' "$ACETATE" checkpoint ls "$SESSION"
    server_start acetate
    checkpoints_client checkpoint "$SESSION" 'a checkpoint, requested beside 10,000 others' 1
    server_stop acetate
}

checkpoints_restore() {
    local files
    for files in "$CHECKPOINTS_SMALL" "$CHECKPOINTS_LARGE"; do
        checkpoints_copy "session-$files.db"
        server_start acetate
        checkpoints_client restore "$SESSION" "a restore of 10 of $files files, requested" 10
        checkpoints_client restore "$SESSION" "a restore of 500 of $files files, requested" 500
        server_stop acetate
    done
    checkpoints_copy "session-$CHECKPOINTS_FILES.db"
    checkpoints_restore_deleted "$CHECKPOINTS_FILES files of the session"
    BASE=$RUN/base
    [ -d "$BASE" ] || "$PERF_CLIENT" make-files "$BASE" "$CHECKPOINTS_FILES"
    SESSION=$RUN/session.db
    rm -f "$SESSION"*
    checkpoints_restore_deleted "$CHECKPOINTS_FILES files of the base"
    BASE=''
}

# checkpoints_restore_deleted WHAT: removes all as a client does, and brings it back.
checkpoints_restore_deleted() {
    server_start acetate
    checkpoints_client make-watched
    "$ACETATE" checkpoint create "$SESSION" before >/dev/null
    checkpoints_client remove-all
    checkpoints_client beside "restore of $1, deleted" "$ACETATE" restore "$SESSION" before --yes
    checkpoints_client beside "undo of that of $1" "$ACETATE" undo "$SESSION" --yes
    server_stop acetate
}

# Two sizes of change in one tree, and one in a small tree.
checkpoints_diff() {
    local files changes
    for files in "$CHECKPOINTS_SMALL" "$CHECKPOINTS_LARGE"; do
        checkpoints_copy "session-$files.db"
        server_start acetate
        for changes in 100 1000 10000; do
            ((changes < files)) || continue
            "$ACETATE" checkpoint create "$SESSION" "before-$changes" >/dev/null
            checkpoints_client chmod "$changes"
            "$ACETATE" checkpoint create "$SESSION" "after-$changes" >/dev/null
        done
        server_stop acetate
        for changes in 100 1000 10000; do
            ((changes < files)) || continue
            checkpoints_time "diff between two checkpoints: $changes of $files files changed" \
                "$ACETATE" diff "$SESSION" --from "before-$changes" --to "after-$changes" --json
        done
    done
}

# checkpoints_by_turns WORK WHAT SESSION: beside a server over an equal session without checkpoints.
checkpoints_by_turns() {
    local without_pid without
    cp "$RUN/session-$CHECKPOINTS_SMALL.db" "$RUN/session-without.db"
    HOST=127.0.0.2 SESSION=$RUN/session-without.db
    server_start acetate
    without_pid=$SERVER_PID without=$nfs
    HOST=127.0.0.1
    checkpoints_copy "$3"
    server_start acetate
    checkpoints_client "$1" "$without" "$SESSION" "$2" "$((4 * milliseconds))"
    server_stop acetate
    SERVER_PID=$without_pid
    server_stop acetate
    rm -f "$RUN"/session-without.db*
}
