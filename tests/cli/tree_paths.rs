//! Relative paths begin at the current directory in the base, in every command with paths.

use super::change::in_both;
use super::program::run;

#[test]
fn relative_paths_begin_at_the_current_directory() {
    in_both(|place| {
        let dir = place.host("base/dir");
        let does = |args: &[&str]| {
            let (command, rest) = args.split_first().unwrap();
            let output = run(&dir, &[&[*command, "../../s.db"], rest].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
            String::from_utf8(output.stdout).unwrap()
        };
        let kept = place.host("base/kept");
        let kept = kept.to_str().unwrap();
        assert_eq!(does(&["cat", "file", "../kept", "/kept"]), "contentkeptkept");
        assert_eq!(does(&["ls", "."]), "file\nsub\n");
        assert_eq!(does(&["ls"]), "file\nsub\n");
        assert_eq!(does(&["find"]), "/dir\n/dir/file\n/dir/sub\n/dir/sub/deep\n");
        assert!(does(&["tree"]).starts_with("/dir\n"));
        assert!(does(&["du"]).ends_with("/dir\n"));
        assert_eq!(does(&["ls", "/"]), "dir\nkept\nlink\n");
        assert_eq!(does(&["find", "sub"]), "/dir/sub\n/dir/sub/deep\n");
        assert!(does(&["tree", "sub"]).starts_with("/dir/sub\n"));
        assert!(does(&["du", "sub"]).contains("/dir/sub\n"));
        assert!(does(&["stat", "file"]).contains("/dir/file"));
        does(&["write", "written", "--from", kept]);
        does(&["mkdir", "new"]);
        does(&["touch", "new/touched"]);
        does(&["cp", kept, ":copied"]);
        does(&["cp", ":file", ":new/within"]);
        does(&["cp", ":../kept", "../../out"]);
        does(&["mv", "copied", "new"]);
        does(&["ln", "file", "again"]);
        does(&["ln", "-s", "file", "symbolic"]);
        does(&["chmod", "600", "written"]);
        does(&["mkdir", "going"]);
        does(&["rmdir", "going"]);
        does(&["rm", "-r", "sub"]);
        assert_eq!(
            place.says(0, "find", &["dir", "--changed"]),
            "/dir\n/dir/again\n/dir/file\n/dir/new\n/dir/new/copied\n/dir/new/touched\n\
             /dir/new/within\n/dir/symbolic\n/dir/written\n"
        );
        assert_eq!(place.says(0, "ls", &[]), "dir\nkept\nlink\n");
        let outside = run(&dir, &["cat", "../../s.db", "../../kept"]);
        let said = String::from_utf8_lossy(&outside.stderr).into_owned();
        assert_eq!(said, "error: ../../kept: not a path in the session's tree\n");
        for command in ["cat", "ls", "rm", "mkdir", "write"] {
            let said = place.says(2, command, &[""]);
            assert!(said.starts_with("error: an empty path names nothing"), "{command}: {said}");
        }
    });
}
