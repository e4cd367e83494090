# What the server has resident: idle, after a walk through a base of a million files, and while
# very many clients read at once.

MEMORY_FILES=1000000
# Entries of the tree: files, and directories of a thousand.
MEMORY_ENTRIES=$((MEMORY_FILES + MEMORY_FILES / 1000))
MEMORY_CLIENTS=300

part_memory() {
    local tree=$RUN/million
    COPY='' BASE=$tree/base SESSION=$RUN/session.db
    rm -rf "$SESSION"*
    mkdir -p "$tree"
    # In memory: a million files on a disk take a minute to make, and another one to remove.
    mount -t tmpfs -o nr_inodes=1200000 none "$tree"
    note "memory: making a base of $MEMORY_FILES files"
    "$PERF_CLIENT" make-files "$BASE" "$MEMORY_FILES"
    server_start acetate
    "$PERF_CLIENT" mount acetate "$nfs" "$mount" "$export"
    memory_note 'idle, mounted once' VmRSS
    note "memory: walking through them"
    "$PERF_CLIENT" walk acetate "$nfs" "$mount" "$export" "$MEMORY_ENTRIES" >>"$RESULTS" ||
        die "the walk failed"
    memory_note 'after a walk through a million files' VmRSS
    memory_note 'during that walk' VmHWM
    server_stop acetate
    umount "$tree"
    memory_storm
}

memory_storm() {
    note "memory: $MEMORY_CLIENTS clients at once"
    BASE=$RUN/base
    rm -rf "$BASE" "$SESSION"*
    "$PERF_CLIENT" make-tree "$BASE"
    server_start acetate
    "$PERF_CLIENT" storm acetate "$nfs" "$mount" "$export" "$MEMORY_CLIENTS" 2000 ||
        die "the clients were not served"
    memory_note "$MEMORY_CLIENTS clients that read 1 MiB pieces" VmHWM
    server_stop acetate
    rm -rf "$BASE" "$SESSION"*
}

# memory_note WHAT FIELD
memory_note() {
    local kib
    kib=$(awk -v field="$2:" '$1 == field { print $2 }' "/proc/$SERVER_PID/status")
    printf '{"part":"memory","what":"%s","server":"acetate","value":%d.%02d,"unit":"MiB"}\n' \
        "$1" $((kib / 1024)) $((kib % 1024 * 100 / 1024)) >>"$RESULTS"
}
