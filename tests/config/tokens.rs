//! Paths that nobody can guess.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use acetate::config::{Missing, tokens_file};

use super::{Folder, faults, with};

fn secret(name: &str) -> String {
    with(&format!("name = \"{name}\"\ntoken = true")).replace("path = \"/x\"\n", "")
}

#[test]
fn a_token_is_made_once_and_kept() {
    let folder = Folder::new(&[secret("a"), secret("b"), with("")].concat());
    let unmade = folder.read(Missing::Leave).unwrap().exports;
    assert!(unmade[0].path.is_none() && unmade[0].token.is_none() && unmade[0].is_secret);
    assert!(!tokens_file(&folder.file()).exists(), "looking writes nothing");

    let made = folder.read(Missing::Make).unwrap().exports;
    let path = |n: usize| made[n].path.clone().unwrap().to_string();
    let token = made[0].token.clone().unwrap();
    assert_eq!(path(0), format!("/a-{}", token.secret()));
    assert_eq!(token.secret().len(), 32);
    assert!(path(1).starts_with("/b-") && path(1)[3..] != path(0)[3..]);
    assert_eq!(path(2), "/x");
    let mode = fs::metadata(tokens_file(&folder.file())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // As they were, however often it is read, and when another comes.
    folder.write(&[secret("b"), secret("c"), secret("a")].concat());
    let again = folder.read(Missing::Make).unwrap().exports;
    assert_eq!((&again[2].path, &again[0].path), (&made[0].path, &made[1].path));
    assert_eq!(folder.read(Missing::Leave).unwrap().exports, again);
    folder.write(&secret("c"));
    assert_eq!(folder.read(Missing::Make).unwrap().exports[0].path, again[1].path);
}

#[test]
fn a_mark_tells_tokens_apart_and_gives_nothing_away() {
    let folder = Folder::new(&[secret("a"), secret("b")].concat());
    let exports = folder.read(Missing::Make).unwrap().exports;
    let [a, b] = [0, 1].map(|n| exports[n].token.clone().unwrap());
    assert_ne!(a.mark(), b.mark());
    assert!(a.mark().len() == 8 && !a.secret().contains(&a.mark()));
    let debugged = format!("{a:?}");
    assert!(debugged.contains(&a.mark()) && !debugged.contains(a.secret()));
}

#[test]
fn a_token_needs_a_name_and_no_path() {
    faults(&[
        (&with("token = true"), "2:8: an export has a path or a token, not both [with a token"),
        ("[[export]]\ntoken = true\n", "1:1: an export with a token needs a name [its token is"),
        ("[[export]]\nname = \"a\"\ntoken = false\n", "1:1: this export has no path"),
    ]);
}

#[test]
fn a_file_of_tokens_that_is_wrong_is_not_replaced() {
    let folder = Folder::new(&secret("a"));
    let tokens = tokens_file(&folder.file());
    let put = |text: &str, mode: u32| {
        fs::write(&tokens, text).unwrap();
        fs::set_permissions(&tokens, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (text, mode, said) in [
        ("", 0o640, ".tokens: users other than its owner can read this token file"),
        ("a = \"short\"", 0o600, ".tokens:1:5: a token is 32 hexadecimal digits"),
        ("a = 1", 0o600, ".tokens:1:5: invalid type: integer"),
        ("a", 0o600, ".tokens:1:2:"),
    ] {
        put(text, mode);
        for missing in [Missing::Leave, Missing::Make] {
            let error = folder.read(missing).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.hint().is_some());
        }
        assert_eq!(fs::read_to_string(&tokens).unwrap(), text);
    }
    // Half a file of a server that was killed is in nobody's way.
    fs::remove_file(&tokens).unwrap();
    fs::write(folder.path().join("exports.toml.tokens.new"), "half").unwrap();
    assert!(folder.read(Missing::Make).unwrap().exports[0].token.is_some());
}

#[test]
fn only_one_makes_tokens_at_a_time() {
    let folder = Folder::new(&secret("a"));
    let other = fs::File::open(folder.file()).unwrap();
    other.lock().unwrap();
    let error = folder.read(Missing::Make).unwrap_err();
    assert!(error.to_string().contains("another server is making tokens"), "{error}");
    other.unlock().unwrap();
    let made = folder.read(Missing::Make).unwrap();
    other.lock().unwrap();
    assert_eq!(folder.read(Missing::Make).unwrap(), made, "nothing is to be made");
}
