# Thousands of sessions behind one server: what they take while they are closed and while they are
# open, how soon a closed one answers, and how they share the server.

# Fewer sessions, or rounds through them: FLEET_SESSIONS=N, FLEET_ROUNDS=N.
FLEET_SESSIONS=${FLEET_SESSIONS:-10000} FLEET_ROUNDS=${FLEET_ROUNDS:-3}
FLEET_OPEN=500 FLEET_FIRST=1000
FLEET_CLIENTS=200 FLEET_FLOOD=64 FLEET_NEW=200
# With --quick.
FLEET_FEW=500 FLEET_FEW_OPEN=100 FLEET_FEW_FIRST=200 FLEET_FEW_NEW=20
# Milliseconds of a rate.
FLEET_TIME=3000
# Where nothing is to be closed, and where all is to be, soon.
FLEET_KEEP=$'max_open = 4096\nidle_close = "1h"' FLEET_CLOSE=$'max_open = 64\nidle_close = "1s"'

part_fleet() {
    FLEET=$RUN/fleet
    ((rounds > 1)) || fleet_few
    rm -rf "$FLEET"
    mkdir -p "$FLEET"
    # A session that is open has some ten descriptors.
    ulimit -n "$(ulimit -H -n)"
    export=/chat nfs=$HOST:2049 mount=$HOST:2049
    fleet_work sync "$FLEET"
    note "fleet: making $FLEET_SESSIONS sessions"
    fleet_template "$FLEET_CLOSE" >"$FLEET/exports.toml"
    fleet_start
    fleet_work make "$FLEET_SESSIONS"
    fleet_stop
    fleet_work space 'an empty session at rest' "$FLEET_OPEN" "$FLEET/chats"
    fleet_written
    fleet_template "$FLEET_KEEP" >"$FLEET/exports.toml"
    fleet_start_up "start, $FLEET_SESSIONS sessions behind one template"
    fleet_open
    fleet_first
    fleet_share
    fleet_cycle
    rm -rf "$FLEET"
}

fleet_few() {
    FLEET_SESSIONS=$FLEET_FEW FLEET_OPEN=$FLEET_FEW_OPEN FLEET_FIRST=$FLEET_FEW_FIRST
    FLEET_NEW=$FLEET_FEW_NEW FLEET_TIME=500
}

# fleet_template HEAD: sessions of one mount, and exports of four sessions each.
fleet_template() {
    local at
    cat <<TOML
$1

[[template]]
path = "/chat/{chat}"
allow = { chat = "[0-9]+" }
options = ["insecure", "no_root_squash"]

  [[template.mount]]
  at = "/"
  session = "chats/{chat}.db"

[[template]]
path = "/four/{chat}"
allow = { chat = "[0-9]+" }
options = ["insecure", "no_root_squash"]

  [[template.mount]]
  at = "/"
  session = "four/{chat}.db"
TOML
    for at in one two three; do
        printf '\n  [[template.mount]]\n  at = "/%s"\n  session = "%s/{chat}.db"\n' "$at" "$at"
    done
}

# Every session as an export of the file, at another path.
fleet_written() {
    local number
    {
        printf 'idle_close = "1s"\n'
        for ((number = 0; number < FLEET_SESSIONS; number++)); do
            printf '[[export]]\npath = "/%d"\noptions = ["insecure", "no_root_squash"]\n' "$number"
            printf '[[export.mount]]\nat = "/"\nsession = "chats/%d.db"\n' "$number"
        done
    } >"$FLEET/exports.toml"
    fleet_start_up "start, $FLEET_SESSIONS written exports"
    fleet_start
    # The first exports are open until they are idle.
    sleep 5
    fleet_work note "$FLEET_SESSIONS written exports, none used"
    fleet_stop
}

fleet_open() {
    fleet_start
    fleet_work note "$FLEET_SESSIONS sessions behind one template, none used"
    fleet_work open "$FLEET_OPEN"
    fleet_work note "$FLEET_OPEN sessions open by GETATTR"
    fleet_work space 'an empty session, open' "$FLEET_OPEN" "$FLEET/chats"
    fleet_work work "$FLEET_OPEN"
    fleet_work note "$FLEET_OPEN sessions after CREATE, WRITE, COMMIT, READDIRPLUS"
    fleet_stop
}

fleet_first() {
    fleet_start
    fleet_work first 'first call to a closed session' "$FLEET_FIRST"
    fleet_work work "$FLEET_FIRST"
    kill -KILL "$SERVER_PID"
    wait "$SERVER_PID" 2>/dev/null || true
    fleet_start
    fleet_work first 'first call to a session after kill -9' "$FLEET_FIRST"
    fleet_stop
    fleet_start
    export=/four
    fleet_work mount 'MNT that makes four sessions' "$FLEET_NEW"
    export=/chat
    fleet_stop
}

fleet_share() {
    note "fleet: $FLEET_CLIENTS clients at once"
    fleet_start
    fleet_work spread "$FLEET_CLIENTS" "$FLEET_TIME"
    fleet_work flood "$FLEET_FLOOD" "$FLEET_TIME"
    fleet_stop
}

fleet_cycle() {
    note "fleet: opening all sessions in turn, $FLEET_ROUNDS times"
    fleet_template "$FLEET_CLOSE" >"$FLEET/exports.toml"
    fleet_start
    fleet_work cycle "$FLEET_SESSIONS" "$FLEET_ROUNDS"
    fleet_stop
}

fleet_command() {
    command=("$ACETATE" serve --config "$FLEET/exports.toml" --listen "$nfs")
}

fleet_start() {
    fleet_command
    "${command[@]}" </dev/null >>"$RUN/logs/acetate" 2>&1 8>&- &
    SERVER_PID=$!
    local deadline=$(($(now_ms) + 120000))
    until (exec 3<>"/dev/tcp/${nfs/:/\/}") 2>/dev/null; do
        kill -0 "$SERVER_PID" 2>/dev/null && (($(now_ms) < deadline)) ||
            die "acetate does not listen at $nfs" "its log is $RUN/logs/acetate"
        sleep 0.02
    done
}

# Its memory is a figure of this part, and not of all parts together.
fleet_stop() {
    kill -TERM "$SERVER_PID"
    wait "$SERVER_PID" || die "acetate ended with $?" "its log is $RUN/logs/acetate"
}

fleet_start_up() {
    local round
    fleet_command
    for ((round = 1; round <= rounds; round++)); do
        fleet_work start "$1" "${command[@]}"
    done
}

# fleet_work WHAT ARGUMENT...
fleet_work() {
    local what=$1
    shift
    SERVER_PID=$SERVER_PID "$PERF_CLIENT" fleet acetate "$nfs" "$mount" "$export" "$what" \
        "$FLEET/handles" "$@" >>"$RESULTS" || die "the fleet's $what failed"
}
