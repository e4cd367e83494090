# Real work, in the guest: what lib/guest-case runs. Each workload has a mount that has cached
# nothing yet, and is timed by itself, from its first program to its last.

mounts_itself=yes
INPUTS=/mnt/host/work

export npm_config_cache=$TMPDIR/npm npm_config_update_notifier=false npm_config_offline=true
export npm_config_audit=false npm_config_fund=false npm_config_userconfig=/dev/null
export CARGO_HOME=$TMPDIR/cargo CARGO_NET_OFFLINE=true
unset CARGO_TARGET_DIR RUSTC_WRAPPER
PATH=$(<"$INPUTS/toolchain"):$PATH

work_untar() { mkdir untar && tar -C untar -xf "$INPUTS/in.tar"; }

work_git() {
    git clone -q "file://$INPUTS/origin.git" clone && cd clone
    same '' "$(git status --porcelain)" 'the status of a clone'
    same '' "$(git status --porcelain)" 'the status of a clone, again'
    echo more >>src/000/00003/file-000121
    echo new >new-file
    git add -A
    git commit -qm third
}

work_cp() { cp -r tree/copied copy; }
work_find() { same 40000 "$(find tree -type f -size +0 | wc -l)" 'files'; }
work_grep() { same 3 "$(grep -rl file-000777 tree | wc -l)" 'files with a word'; }
work_rm() { rm -rf tree/removed; }
work_cargo() { cd crate && cargo build -q; }
work_npm() { mkdir -p project && cd project && cp "$INPUTS"/project/*.json . && npm ci --silent; }

# Programs and their libraries are read for the first time: that is nobody's time.
warm_up() {
    mkdir "$TMPDIR/warm" && cd "$TMPDIR/warm"
    cp -r "$INPUTS/npm-cache" "$TMPDIR/npm"
    cp -r "$INPUTS/base/crate" .
    (work_untar)
    (work_git)
    (work_cargo)
    (work_npm)
    grep -rq nothing-like-this untar || [ "$(find untar | wc -l)" -gt 5000 ]
    cd / && rm -rf "$TMPDIR/warm"
}

measure() {
    local begin end
    mount_at /mnt/a
    cp /proc/self/mountstats "$INPUTS/before"
    host begin "$1"
    begin=${EPOCHREALTIME/./}
    (cd /mnt/a && "work_$1")
    end=${EPOCHREALTIME/./}
    cp /proc/self/mountstats "$INPUTS/after"
    umount /mnt/a
    host end "$1" $((end - begin))
}

guest() {
    local workload
    # shellcheck disable=SC2153  # the host says which
    for workload in $WORKLOADS; do measure "$workload"; done
}
