# The guest: User Mode Linux, a Linux kernel that runs as an ordinary program. Source it.
#
# guest_boot            boots it, or does nothing where it runs
# guest_run SECONDS CMD runs a shell command in it, serving the `host` requests that come
# guest_kill            ends it at once
#
# The two sides talk through files below $RUN/exchange, which the guest sees through hostfs.

EXCHANGE=$RUN/exchange
CONSOLE=$RUN/console.log

guest_alive() { [ -s "$RUN/guest.pid" ] && kill -0 "$(<"$RUN/guest.pid")" 2>/dev/null; }

# A second disk, ext4, to compare with: the same kernel, the same programs, a local filesystem.
make_ext4_image() {
    [ -e "$RUN/ext4.img" ] && return
    truncate -s 768M "$RUN/ext4.img"
    mkfs.ext4 -q -F "$RUN/ext4.img"
}

guest_boot() {
    guest_alive && return
    rm -rf "$EXCHANGE" "$RUN/uml"
    mkdir -p "$EXCHANGE" "$RUN/uml"
    make_ext4_image
    # The memory file must be on something that allows execution. setsid: one group to kill.
    local arguments=(
        mem=2G "uml_dir=$RUN/uml" umid=guest rootfstype=hostfs rootflags=/ ro
        "init=$LIB/guest-init" "ubd0=$RUN/ext4.img"
        con=null con0=fd:0,fd:1 "vec0:transport=tap,ifname=tap0,depth=128,gro=1" quiet
        "RUN=$RUN" "REPO=$REPO" "SERVER_ADDRESS=$SERVER_ADDRESS" "GUEST_ADDRESS=$GUEST_ADDRESS"
    )
    setsid linux.uml "${arguments[@]}" </dev/null >>"$CONSOLE" 2>&1 &
    echo $! >"$RUN/guest.pid"
    local deadline=$(($(now_ms) + 30000))
    until [ -e "$EXCHANGE/up" ]; do
        if ! guest_alive || (($(now_ms) > deadline)); then
            tail -n 20 "$CONSOLE" >&2
            guest_kill
            die "the guest kernel did not come up" "the whole console: $CONSOLE"
        fi
        sleep 0.05
    done
}

# guest_tell_stuck: has the guest print on its console which tasks wait, if it still can.
guest_tell_stuck() {
    local deadline=$(($(now_ms) + 3000))
    : >"$EXCHANGE/stuck"
    until [ -e "$EXCHANGE/stuck.told" ] || (($(now_ms) > deadline)); do sleep 0.1; done
}

guest_kill() {
    [ -s "$RUN/guest.pid" ] || return 0
    kill -KILL -- "-$(<"$RUN/guest.pid")" 2>/dev/null || true
    wait "$(<"$RUN/guest.pid")" 2>/dev/null || true
    # The tap device is free again only when the process is gone.
    while guest_alive; do sleep 0.05; done
    rm -f "$RUN/guest.pid"
}

# guest_serve_request: answers one request of the guest's `host` function.
guest_serve_request() {
    mv "$EXCHANGE/request" "$EXCHANGE/request.running"
    local words name status=0
    eval "words=($(<"$EXCHANGE/request.running"))"
    name=${words[0]}
    case $name in
        stop | start | kill9 | restart) name=server_$name ;;
        *) name=host_$name ;;
    esac
    "$name" "${words[@]:1}" || status=$?
    echo "$status" >"$EXCHANGE/answer.new"
    mv "$EXCHANGE/answer.new" "$EXCHANGE/answer"
}

# guest_run SECONDS COMMAND: the command's exit status; 124 after a timeout, 125 when the guest
# died. In both the guest is gone afterwards.
guest_run() {
    local deadline=$(($(now_ms) + $1 * 1000))
    rm -f "$EXCHANGE"/{done,request,answer}
    printf '%s\n' "$2" >"$EXCHANGE/job.new"
    mv "$EXCHANGE/job.new" "$EXCHANGE/job"
    until [ -e "$EXCHANGE/done" ]; do
        [ ! -e "$EXCHANGE/request" ] || guest_serve_request
        if ! guest_alive; then
            note "failed: the guest kernel ended"
            return 125
        fi
        if (($(now_ms) > deadline)); then
            note "failed: nothing after $1 seconds; killing the guest. Its last commands:"
            tail -n 5 "$EXCHANGE/trace" >&2 || true
            guest_tell_stuck
            guest_kill
            return 124
        fi
        sleep 0.02
    done
    return "$(<"$EXCHANGE/done")"
}
