# What a session takes that holds a GiB of files of 4 KiB to 1 MiB, how long its log gets, and
# what `acetate compact` gives back once all is removed.

SIZE_BYTES=$((1 << 30))

part_size() {
    local compacted
    COPY='' BASE='' SESSION=$RUN/session.db
    rm -f "$SESSION"*
    note "size: filling a session, and emptying it"
    server_start acetate
    "$PERF_CLIENT" fill acetate "$nfs" "$mount" "$export" "$SESSION" "$SIZE_BYTES" >>"$RESULTS" ||
        die "the session was not filled"
    server_stop acetate
    compacted=$("$ACETATE" compact --json "$SESSION")
    python3 - "$compacted" >>"$RESULTS" <<'PY'
import json, sys
found = json.loads(sys.argv[1])
for what in "before", "after":
    value = found[f"{what}_bytes"] / (1 << 20)
    print(json.dumps({"part": "size", "what": f"the empty session {what} `acetate compact`",
                      "server": "acetate", "value": value, "unit": "MiB"}))
PY
    rm -f "$SESSION"*
}
