# For the cases of the plain mount command: a client as it is after `apt install nfs-common`.
# Source it in a case.

# plain_client: starts the client's own portmapper and status daemon, which `mount` wants when it
# is not told `nolock`, and loads version 4 so that `mount` really tries it first.
plain_client() {
    local modules=(/usr/lib/uml/modules/*/kernel) module
    for module in net/dns_resolver/dns_resolver lib/oid_registry net/sunrpc/auth_gss/auth_rpcgss \
        fs/nfs/nfsv4; do
        [ ! -e "${modules[0]}/$module.ko" ] || busybox insmod "${modules[0]}/$module.ko" || true
    done
    grep -qw nfs4 /proc/filesystems || fail 'no version 4 in this kernel'
    plain_client_files
    rpcbind -w
    rpc.statd --no-notify
}

# plain_client_files: where the daemons keep their files, empty.
plain_client_files() {
    busybox mount -t tmpfs none /var/lib/nfs
    mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak /run/rpcbind
    chmod 777 /var/lib/nfs /var/lib/nfs/*
}

# plain_mount: the command, some work, and the version that it came to.
plain_mount() {
    mkdir -p /mnt/agent
    timeout 60 mount -t nfs "$SERVER_ADDRESS:$EXPORT" /mnt/agent
    grep -E ' /mnt/agent nfs .*vers=3' /proc/mounts ||
        fail "not version 3: $(grep agent /proc/mounts)"
    same hello "$(cat /mnt/agent/file)" 'a file of the base'
    echo new >/mnt/agent/new
    same 'file new' "$(echo $(ls /mnt/agent))" 'the listing'
    umount /mnt/agent
    plain_client_end
}

# plain_client_end: stops what plain_client has started.
plain_client_end() {
    kill $(pidof rpc.statd) $(pidof rpcbind) 2>/dev/null || true
    sleep 0.2
    umount /var/lib/nfs
}
