# What a suite in integration/conformance/suites may use, on the host and in the guest. Source it.
#
# result SUITE VERSION RUN PASSED FAILED   a row of the table; SUITE may have more words
# skipped SUITE COUNT REASON               what was left out of it, and why
# failed SUITE NAME                        a failure; suites/SUITE.expected may have its reason
# build COMMAND...                         on the host: copies the checkout and builds it there
# BUILT                                    where that is, in the guest
#
# A suite is a case as lib/host-case describes it, and may set, each on a line of its own:
#   packages='...'      Debian's packages that it needs
#   checkout=yes        it needs a checkout; checkout_has=FILE tells one; source=... says where it is

SUITE=$(basename "${BASH_SOURCE[1]}")
[ -d /mnt/host/exchange ] && RESULTS=/mnt/host || RESULTS=$RUN
BUILT=/mnt/host/build/$SUITE

result() { printf '%s\t%s\t%d\t%d\t%d\n' "$@" >>"$RESULTS/results.tsv"; }

skipped() { [ "$2" = 0 ] || printf '%s\t%d\t%s\n' "$@" >>"$RESULTS/skips.tsv"; }

failed() {
    local expected=${BASH_SOURCE[0]%/*}/../conformance/suites/${1%% *}.expected reason=
    [ ! -e "$expected" ] || reason=$(awk -v name="$2: " \
        'index($0, name) == 1 { print substr($0, length(name) + 1) }' "$expected")
    printf '%s\t%s\t%s\n' "$1" "$2" "$reason" >>"$RESULTS/failures.tsv"
    printf 'FAILED %s: %s\n' "$1" "$2"
}

build() {
    local variable=CHECKOUT_${SUITE//-/_}
    mkdir -p "$RUN/build"
    cp -a "${!variable}" "$RUN/build/$SUITE"
    git -c safe.directory='*' -C "${!variable}" rev-parse --short HEAD >"$RUN/build/$SUITE.version" \
        2>/dev/null || echo unknown >"$RUN/build/$SUITE.version"
    (cd "$RUN/build/$SUITE" && "$@") >"$RUN/build/$SUITE.log" 2>&1 || {
        tail -n 30 "$RUN/build/$SUITE.log" >&2
        note "failed: $SUITE cannot be built"
        return 1
    }
}

version() { cat "/mnt/host/build/$SUITE.version"; }
