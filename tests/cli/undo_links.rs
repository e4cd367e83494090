//! An undo names the files whose further names it cannot give them again.

use std::fs;

use super::apply_kept::Place;
use crate::support::skip::skip;

/// An undo in the place that the lines make names `path`, and why, as text and as JSON. Returns the
/// places.
#[track_caller]
fn check_told(lines: &str, path: &str, why: &str) -> Vec<Place> {
    let places: Vec<_> = (0..2).map_while(|_| Place::new(lines)).collect();
    let [text, json] = &*places else { return places };
    let wanted = format!("warning: {path}: is no longer a hard link: {why}");
    let said = text.says("a apply --undo s.db --yes", 0);
    assert!(said.contains(&wanted), "{said}");
    let said = json.says("a apply --undo s.db --yes --json", 0);
    let line = said.lines().find(|line| line.contains(r#""type":"link_lost""#));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(&format!(r#""path":"{path}""#)) && line.contains(why), "{line}");
    places
}

const NOT_FOUND: &str = "none of its other names is found";

#[test]
fn whose_names_are_outside_the_base() {
    let lines = "mkdir base/d; echo 1 >base/d/f; ln base/d/f out; echo 2 >base/g; ln base/g base/h
give -R base; a init s.db --base base; a rm -r s.db d g; a apply s.db --yes";
    for place in check_told(lines, "/d/f", NOT_FOUND) {
        place.says("test base/g -ef base/h", 0);
        let said = place.says("a apply --undo s.db --yes; a apply --undo s.db --yes", 0);
        assert!(!said.contains("no longer a hard link"), "it had no other name any more: {said}");
    }
}

#[test]
fn whose_names_are_where_the_user_may_not_look() {
    let lines = "mkdir base/d; echo 1 >base/f; ln base/f base/d/f; give -R base
a init s.db --base base; a rm s.db f; a apply s.db --yes; chmod 000 base/d";
    check_told(lines, "/f", NOT_FOUND);
}

#[test]
fn that_the_host_does_not_link() {
    let lines = "echo 1 >base/f; ln base/f base/g; give -R base
a init s.db --base base; a rm s.db f; a apply s.db --yes; chattr +i base/g";
    let has_immutable = "echo 1 >f; chattr +i f 2>/dev/null || touch no; chattr -i f || true";
    match Place::new(has_immutable) {
        Some(place) if place.path().join("no").exists() => {
            skip("the filesystem has no immutable files");
        }
        _ => {
            let why = "the host refuses a hard link: Operation not permitted";
            for place in check_told(lines, "/f", why) {
                place.says("chattr -i base/g", 0);
            }
        }
    }
}

#[test]
fn of_which_there_are_too_many() {
    // The limit of ext4 is 65,000; XFS and tmpfs have none that a test reaches.
    const TOO_MANY: usize = 65_100;
    let Some(place) = Place::new("echo 1 >base/f") else { return };
    let (file, more) = (place.path().join("base/f"), place.path().join("more"));
    fs::create_dir(&more).unwrap();
    let link = |at: usize| fs::hard_link(&file, more.join(at.to_string()));
    if (0..TOO_MANY).try_for_each(link).is_ok() {
        skip("the filesystem allows more than 65,000 hard links");
        return;
    }
    fs::remove_file(more.join("0")).unwrap();
    place.says("ln base/f base/g; give -R base; a init s.db --base base; a rm s.db f", 0);
    place.says("a apply s.db --yes; ln base/g more/0", 0);
    let said = place.says("a apply --undo s.db --yes", 0);
    assert!(said.contains("/f: is no longer a hard link: the host refuses a hard link"), "{said}");
    place.says("test ! base/f -ef base/g", 0);
}
