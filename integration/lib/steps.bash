# The named steps of a long run, counted. Source it after common.bash.
#
# step NAME COMMAND...    runs it; prints name and time, and its output only when it fails
# beside NAME COMMAND...  begins it, beside the steps that follow; one at a time
# joined                  a step that waits for what `beside` began, and is called as that
# no_warnings NAME        whether cargo warned of nothing in that step; prints the warnings
# advisories              a step: known faults of dependencies, where the list can be reached
# skips NAME              which tests of that step were skipped, and why; as root, those that need root
# suite COMMAND...        runs what prints its own cases and ends with `N passed, N failed`
# tell                    prints how many passed and failed in all; its status says whether all did
#
# Each step's output is kept in target/test-logs. A step that fails keeps no other from running.

LOGS=$TARGET/test-logs
passed=0 failed=0 beside_name='' beside_pid=''
mkdir -p "$LOGS"

step() {
    local name=$1 log start status=0
    shift
    log=$LOGS/${name// /-}.log
    start=$(now_ms)
    "$@" >"$log" 2>&1 || status=$?
    if ((status == 0)); then
        passed=$((passed + 1))
        printf '%-28s %6s s  ok\n' "$name" "$(seconds_since "$start")"
    else
        failed=$((failed + 1))
        printf '%-28s %6s s  FAILED\n' "$name" "$(seconds_since "$start")"
        # The failures themselves may be far above the end.
        { grep -E 'panicked at|^error|FAILED' "$log" | head -n 20 || true; tail -n 60 "$log"; } |
            sed 's/^/    /'
    fi
}

beside() {
    beside_name=$1
    shift
    "$@" >"$LOGS/beside.log" 2>&1 &
    beside_pid=$!
}

# What is in the background does not hear Ctrl-C.
trap '[ -z "$beside_pid" ] || kill "$beside_pid" 2>/dev/null || true' EXIT

joined() {
    step "$beside_name" wait_beside
    beside_pid=
}

wait_beside() {
    local status=0
    wait "$beside_pid" || status=$?
    cat "$LOGS/beside.log"
    return "$status"
}

no_warnings() {
    ! grep -A 20 '^warning' "$LOGS/${1// /-}.log"
}

# The list is on GitHub alone, and says nothing about this revision's code.
advisories() {
    if timeout 20 git ls-remote -q https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        step 'advisories' cargo deny --locked check advisories
    else
        printf '%-28s left out: github.com cannot be reached\n' 'advisories'
    fi
}

skips() {
    local log=$LOGS/${1// /-}.log skipped names binary
    skipped=$(grep -o 'SKIPPED .*' "$log" | sort -u || true)
    [ -n "$skipped" ] || return 0
    if ((EUID != 0)) && sudo -n true 2>/dev/null; then
        names=$(sed 's/^SKIPPED \([^ ]*\): .*/\1/' <<<"$skipped")
        binary=$(sed -n 's/.*Running tests\/main\.rs (\(.*\))/\1/p' "$log" | head -n 1)
        # shellcheck disable=SC2086  # names of tests
        step "$1, as root" sudo -n "$binary" --exact $names
        skipped=$(grep -o 'SKIPPED .*' "$LOGS/${1// /-},-as-root.log" | sort -u || true)
    fi
    sed 's/^/    /' <<<"$skipped"
}

suite() {
    local log=$LOGS/suite.log status=0 counts
    # Its last line is for the sum; the others are shown as they come.
    "$@" | tee "$log" || status=1
    counts=$(tail -n 1 "$log")
    if [[ $counts =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
        ((status == 0 || BASH_REMATCH[2] > 0)) || failed=$((failed + 1))
    else
        failed=$((failed + 1))
    fi
}

tell() {
    printf '%d passed, %d failed\n' "$passed" "$failed"
    ((failed == 0))
}
