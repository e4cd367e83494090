# What the real work works on, made on the host, the same each time. Source it.
#
# work_inputs DIR   fills DIR: base (the tree that is served), in.tar, origin.git, project and
#                   npm-cache (an npm project and its cache), toolchain (where cargo is)

work_inputs() {
    local dir=$1
    mkdir -p "$dir/base"
    (
        cd "$dir/base"
        # 40,000 files to look at, of which 28,000 are removed in the end and 5,000 copied.
        python3 "$LIB/make_tree.py" tree/removed 28000 40 1200
        python3 "$LIB/make_tree.py" tree/copied 5000 50 3000
        python3 "$LIB/make_tree.py" tree/kept 7000 40 1200
        make_crate crate
    )
    python3 "$LIB/make_tree.py" "$dir/packed" 5000 50 3000
    tar -C "$dir" -cf "$dir/in.tar" packed
    rm -rf "$dir/packed"
    make_repository "$dir"
    make_npm_project "$dir"
    # The toolchain itself, not rustup's proxy, which would write to the user's home.
    echo "$(rustc --print sysroot)/bin" >"$dir/toolchain"
}

# A crate of ten modules, without dependencies.
make_crate() {
    local i
    mkdir -p "$1/src"
    printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n' >"$1/Cargo.toml"
    for i in 0 1 2 3 4 5 6 7 8 9; do
        echo "pub mod part$i;" >>"$1/src/lib.rs"
        printf 'pub fn sum(all: &[u64]) -> u64 {\n    all.iter().map(|one| one + %d).sum()\n}\n' $i \
            >"$1/src/part$i.rs"
    done
    echo 'fn main() { println!("{}", small::part0::sum(&[40, 2])) }' >"$1/src/main.rs"
}

# A repository of 2,000 files and a few commits.
make_repository() {
    (
        export GIT_AUTHOR_NAME=T GIT_AUTHOR_EMAIL=t@example.org GIT_CONFIG_NOSYSTEM=1 HOME=$1
        export GIT_COMMITTER_NAME=T GIT_COMMITTER_EMAIL=t@example.org
        git init -q -b main "$1/worktree"
        cd "$1/worktree"
        python3 "$LIB/make_tree.py" src 2000 40 2500
        git add -A && git commit -qm first
        find src -type f -name '*7' -exec sh -c 'for f; do echo changed >>"$f"; done' - {} +
        git commit -qam second
        git clone -q --bare . "$1/origin.git"
    )
    rm -rf "$1/worktree"
}

# A project with 30 packages of 50 files, a lock file, and a cache that has them all.
make_npm_project() {
    local directory name
    mkdir -p "$1/project" "$1/packages"
    export npm_config_cache=$1/npm-cache npm_config_update_notifier=false npm_config_audit=false
    export npm_config_fund=false npm_config_offline=true npm_config_userconfig=/dev/null
    python3 "$LIB/make_tree.py" "$1/packages" 1440 48 2000
    for directory in "$1"/packages/*/*; do
        name=package-${directory##*/}
        echo "{\"name\":\"$name\",\"version\":\"1.0.0\",\"main\":\"index.js\"}" \
            >"$directory/package.json"
        echo "module.exports = '$name'" >"$directory/index.js"
        tar -C "${directory%/*}" --transform "s,^${directory##*/},package," \
            -czf "$1/packages/$name.tgz" "${directory##*/}"
    done
    npm cache add "$1"/packages/*.tgz >/dev/null
    python3 - "$1/packages" "$1/project" <<'PY'
import base64, glob, hashlib, json, os, sys

packages, names = {}, {}
for path in sorted(glob.glob(f"{sys.argv[1]}/*.tgz")):
    name = os.path.basename(path)[:-4]
    digest = hashlib.sha512(open(path, "rb").read()).digest()
    names[name] = "1.0.0"
    packages[f"node_modules/{name}"] = {
        "version": "1.0.0",
        "resolved": f"https://registry.npmjs.org/{name}/-/{name}-1.0.0.tgz",
        "integrity": "sha512-" + base64.b64encode(digest).decode(),
    }
project = {"name": "project", "version": "1.0.0", "dependencies": names}
lock = {"name": "project", "version": "1.0.0", "lockfileVersion": 3, "requires": True,
        "packages": {"": project, **packages}}
for name, content in (("package", project), ("package-lock", lock)):
    with open(f"{sys.argv[2]}/{name}.json", "w") as file:
        json.dump(content, file, indent=2)
PY
    rm -rf "$1/packages"
}
