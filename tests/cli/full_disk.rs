//! A full disk and checkpoints: removing works, and says what it cost; a restore is whole or not.

use std::process::Command;

use crate::support::skip::skip;

/// Runs a script in a tmpfs of 48 MiB with the session `s.db`, which holds a file of 12 MiB; `$a`
/// is the program, and `fill` leaves so many MiB. `None` without root.
fn on_a_small_disk(script: &str) -> Option<String> {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let before = r#"
        mount -t tmpfs -o size=48m none "$0" && cd "$0" || exit 9
        a="$1"
        fill() { head -c $(($(df --output=avail -B1M . | tail -1) - $1))M /dev/zero >filled; }
        does() { "$a" "$@" >said 2>&1 </dev/null; echo "$1 $?"; }
        serve() {
            "$a" serve s.db --listen 127.0.0.1:0 2>log & server=$!
            while ! "$a" status s.db | grep -q "^at "; do sleep 0.1; done
        }
        "$a" init s.db >/dev/null 2>&1 || exit 9
        head -c 12M /dev/urandom >/dev/shm/acetate-$$
        large() { "$a" write s.db /"$1" </dev/shm/acetate-$$; }
        trap 'rm /dev/shm/acetate-$$' EXIT
        large large && echo small | "$a" write s.db /small || exit 9
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{before}{script}")]).arg(dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

/// What is removed is not saved: the checkpoint says so, and needs --force. The next one is whole.
#[test]
fn a_named_checkpoint_gives_way_to_what_is_removed() {
    for serve in ["", "serve"] {
        let script = r#"
            does checkpoint create s.db named
            fill 6
            does rm s.db /large
            "$a" checkpoint ls s.db | grep -o '  named.*'
            "$a" checkpoint ls s.db --json | grep -o '"incomplete":"[a-z-]*"'
            "$a" status s.db | grep -o '; 1 incomplete'
            "$a" ls s.db --at named 2>&1
            rm filled
            does restore s.db named --yes; grep -o 'is incomplete\|--force' said
            echo other | "$a" write s.db /small
            does restore s.db named --dry-run; grep -o 'is incomplete' said
            does checkpoint create s.db later
            does rm s.db /small
            does restore s.db later --yes
            "$a" cat s.db /small
            does restore s.db named --yes --force; grep -o 'is incomplete' said
            "$a" ls s.db; "$a" cat s.db /small
            test -z "$server" || { kill $server; wait; grep -c 'nothing is saved for them' log; }
            "$a" check s.db | tail -1
        "#;
        let Some(said) = on_a_small_disk(&format!("{serve}\n{script}")) else { return };
        let expected = "checkpoint 0\nrm 0\n  named  incomplete\n\"incomplete\":\"no-room\"\n\
             ; 1 incomplete\n\
             warning: checkpoint 1 (named) is incomplete: the disk was full, so what changed \
             since, up to the next checkpoint, may look as it was later, and what was removed may \
             be missing\nsmall\n\
             restore 2\nis incomplete\n--force\nrestore 1\nis incomplete\n\
             checkpoint 0\nrm 0\nrestore 0\nother\nrestore 0\nis incomplete\nsmall\nother\n";
        let logged = if serve.is_empty() { "" } else { "1\n" };
        assert_eq!(said, format!("{expected}{logged}s.db: sound\n"), "{serve}");
    }
}

/// Automatic checkpoints go first; those with a name stay whole where that suffices.
#[test]
fn automatic_checkpoints_give_way_first() {
    let script = r#"
        does checkpoint create s.db named
        large other
        does tool run s.db first -- true
        echo changed | "$a" write s.db /small
        does tool run s.db second -- true
        fill 6
        does rm s.db /other
        rm filled
        "$a" checkpoint ls s.db | grep -o '  named.*\|tool.*'
        does restore s.db named --yes
        "$a" cat s.db /small
        "$a" check s.db | tail -1
    "#;
    let Some(said) = on_a_small_disk(script) else { return };
    assert_eq!(
        said,
        "checkpoint 0\ntool 0\ntool 0\nrm 0\n  named\nrestore 0\nsmall\ns.db: sound\n"
    );
}

/// A cut and a rename over a file work as removing does.
#[test]
fn a_cut_and_a_replacement_work_too() {
    for change in ["does write s.db /large", "does mv s.db /small /large"] {
        let script = format!(
            r#"
            does checkpoint create s.db
            fill 6
            {change}
            rm filled
            "$a" checkpoint ls s.db --json | grep -o '"incomplete":"[a-z-]*"'
            "$a" check s.db | tail -1
        "#
        );
        let Some(said) = on_a_small_disk(&script) else { return };
        let verb = change.split(' ').nth(1).unwrap();
        let expected = format!("checkpoint 0\n{verb} 0\n\"incomplete\":\"no-room\"\n");
        assert_eq!(said, format!("{expected}s.db: sound\n"), "{change}");
    }
}

/// A restore that there is no room for changes nothing; the tree as it is keeps its checkpoint.
#[test]
fn a_restore_without_room_changes_nothing() {
    let script = r#"
        does checkpoint create s.db named
        does rm s.db /large
        echo changed | "$a" write s.db /small
        fill 6
        does restore s.db named --yes; cat said
        "$a" ls s.db; "$a" cat s.db /small
        "$a" checkpoint ls s.db | grep -o 'safety\|incomplete'
        rm filled; mount -o remount,size=200m .
        does restore s.db named --yes
        does undo s.db --yes
        "$a" ls s.db; "$a" cat s.db /small
        "$a" check s.db | tail -1
    "#;
    let Some(said) = on_a_small_disk(script) else { return };
    let (first, rest) = said.split_once("restore 2\n").expect(&said);
    assert_eq!(first, "checkpoint 0\nrm 0\n");
    assert!(rest.contains("nothing was restored"), "{rest}");
    assert!(
        rest.ends_with("small\nchanged\nsafety\nrestore 0\nundo 0\nsmall\nchanged\ns.db: sound\n"),
        "{rest}"
    );
}

/// The checkpoint that a merge makes is its way back: without room for it, nothing is merged.
#[test]
fn a_merge_without_room_keeps_the_way_back() {
    let script = r#"
        mount -o remount,size=100m .
        does fork s.db f.db
        does rm f.db /large
        echo mine | "$a" write s.db /mine
        fill 6
        does merge s.db f.db --yes
        "$a" ls s.db
        "$a" checkpoint ls s.db | grep -o '  fork  \|safety\|incomplete'
        rm filled
        does merge s.db f.db --yes
        "$a" ls s.db
        does undo s.db --yes
        "$a" ls s.db
        "$a" check s.db | tail -1
    "#;
    let Some(said) = on_a_small_disk(script) else { return };
    let expected = "fork 0\nrm 0\nmerge 2\nlarge\nmine\nsmall\n  fork  \nsafety\n\
         merge 0\nmine\nsmall\nundo 0\nlarge\nmine\nsmall\ns.db: sound\n";
    assert_eq!(said, expected);
}
